//! The count-down latch: counts as in Redisson, and waiters that no lost message and no deletion keeps.

use lockson::CountDownLatch;

use crate::support::prelude::*;

/// Ends a latch in some way.
type End = fn(&RedisServer, &CountDownLatch);

fn latch_of(client: &Client, count: u32) -> CountDownLatch {
    let latch = client.get_count_down_latch(fresh("latch"));
    assert!(latch.set_count_once(count).unwrap());
    latch
}

fn channel_of(latch: &CountDownLatch) -> String {
    format!("redisson_countdownlatch__channel__{{{}}}", latch.name())
}

/// The time from `open` until `waiters` threads are free.
fn freed_after(latch: &CountDownLatch, server: &RedisServer, waiters: usize, open: impl FnOnce()) -> Duration {
    thread::scope(|scope| {
        let threads: Vec<_> = (0..waiters).map(|_| scope.spawn(|| latch.wait_for(SOON))).collect();
        eventually(SOON, "the channel is subscribed", || server.subscribers(&channel_of(latch)) == 1);
        let (took, ()) = timed(|| {
            open();
            threads.into_iter().for_each(|thread| assert!(joined(thread).unwrap()));
        });
        took
    })
}

#[test]
fn the_count_is_set_once() {
    let latch = client().get_count_down_latch(fresh("latch"));
    assert_eq!(latch.count().unwrap(), 0);
    assert!(latch.set_count_once(1).unwrap() && !latch.set_count_once(2).unwrap());
    assert_eq!(latch.count().unwrap(), 1);
    assert!(latch.delete().unwrap() && !latch.delete().unwrap());
    assert_eq!(kind_of(latch.set_count_once(u32::MAX)), ErrorKind::BadInput);
}

#[test]
fn the_last_count_down_opens_and_leaves_no_key() {
    let (server, latch) = (RedisServer::shared(), latch_of(&client(), 3));
    for left in [2, 1, 0] {
        latch.count_down().unwrap();
        assert_eq!(latch.count().unwrap(), left);
    }
    assert_eq!(server.query::<u32>(&["EXISTS", latch.name()]), 0);
    latch.count_down().unwrap();
    assert_eq!(server.query::<u32>(&["EXISTS", latch.name()]), 0, "an open latch stays open");
    assert!(latch.wait_for(SOON).unwrap());
    assert!(latch.set_count_once(1).unwrap());
}

#[test]
fn the_last_count_down_wakes_all_waiters() {
    let client = client();
    let took = median(5, |_| {
        let latch = latch_of(&client, 5);
        freed_after(&latch, RedisServer::shared(), 20, || (0..5).for_each(|_| latch.count_down().unwrap()))
    });
    assert!(took < ms(300) + STANDSTILLS, "{took:?}");
}

#[test]
fn a_wait_ends_by_its_time() {
    let latch = latch_of(&client(), 1);
    let (took, open) = timed(|| latch.wait_for(ms(200)).unwrap());
    assert!(!open && took >= ms(200) && took < ms(200) + SCHEDULING);
    assert!(!latch.wait_for(Duration::ZERO).unwrap());
    latch.count_down().unwrap();
    assert!(latch.wait_for(Duration::ZERO).unwrap());
}

#[test]
fn waiters_leave_within_a_second_when_the_latch_is_gone() {
    let gone: [(&str, End); 5] = [
        ("deleted here", |_, latch| assert!(latch.delete().unwrap())),
        ("deleted by Redisson", |server, latch| {
            server.run(&["DEL", latch.name()]);
            server.run(&["PUBLISH", &channel_of(latch), "1"]);
        }),
        ("deleted in silence", |server, latch| server.run(&["DEL", latch.name()])),
        ("flushed", |server, _| server.run(&["FLUSHALL"])),
        ("expired", |server, latch| server.run(&["PEXPIRE", latch.name(), "1"])),
    ];
    at_once(gone, |(how, go)| {
        let server = RedisServer::start();
        let latch = latch_of(&Client::connect(&server.url()).unwrap(), 2);
        let took = freed_after(&latch, &server, 20, || go(&server, &latch));
        assert!(took < ms(1_000) + SCHEDULING, "{how}: {took:?}");
    });
}

#[test]
fn a_count_down_between_question_and_subscription_is_seen() {
    let client = client();
    for _ in 0..100 {
        let latch = latch_of(&client, 1);
        thread::scope(|scope| {
            let waiter = scope.spawn(|| latch.wait_for(SOON));
            latch.count_down().unwrap();
            assert!(joined(waiter).unwrap());
        });
    }
}

#[test]
fn waits_end_by_cancel_and_close() {
    let client = client();
    let (latch, cancel) = (latch_of(&client, 1), Cancel::new());
    thread::scope(|scope| {
        let cancelled = scope.spawn(|| latch.with_cancel(&cancel).wait_for(SOON));
        let closed = scope.spawn(|| latch.wait_for(SOON));
        eventually(SOON, "both wait", || RedisServer::shared().subscribers(&channel_of(&latch)) == 1);
        cancel.cancel();
        assert_eq!(kind_of(joined(cancelled)), ErrorKind::Cancelled);
        client.close();
        assert_eq!(kind_of(joined(closed)), ErrorKind::Closed);
    });
}

#[test]
fn a_key_that_is_no_count_is_another_kind() {
    let (server, client) = (RedisServer::shared(), client());
    for other in [["HSET", "field", "1"], ["SET", "abc", "KEEPTTL"], ["SET", "nan", "KEEPTTL"]] {
        let latch = client.get_count_down_latch(fresh("latch"));
        server.run(&[other[0], latch.name(), other[1], other[2]]);
        assert_eq!(kind_of(latch.count_down()), ErrorKind::OtherKind);
        assert_eq!(kind_of(latch.count()), ErrorKind::OtherKind);
        assert_eq!(kind_of(latch.wait()), ErrorKind::OtherKind);
        assert_eq!(kind_of(latch.set_count_once(1)), ErrorKind::OtherKind);
        assert_eq!(kind_of(latch.delete()), ErrorKind::OtherKind);
        assert_eq!(server.query::<i64>(&["EXISTS", latch.name()]), 1);
    }
}

/// Java's waiters of an older count close their gate by this message.
#[test]
fn a_new_count_is_published() {
    let (server, latch) = (RedisServer::shared(), client().get_count_down_latch(fresh("latch")));
    let mut stranger = server.connection();
    let mut messages = stranger.as_pubsub();
    messages.set_read_timeout(Some(SOON)).unwrap();
    messages.subscribe(channel_of(&latch)).unwrap();
    assert!(latch.set_count_once(3).unwrap());
    assert_eq!(messages.get_message().unwrap().get_payload::<String>().unwrap(), "1");
}
