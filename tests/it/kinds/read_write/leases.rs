//! The lease of each side: no release cuts another hold's lease, and a dead holder blocks nobody for long.

use super::{hold_key, sides, state};
use crate::support::prelude::*;

#[test]
fn a_leaving_reader_leaves_the_longest_ttl_of_the_others() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (read, _) = sides(&client(), &name);
    let between = |low: i64, high: i64| {
        let left = ttl_ms(server, &name);
        assert!((low - 500..=high).contains(&left), "{left} is not between {low} and {high}");
    };
    let take = |lease| read.with_lease(ms(lease)).owned().lock().unwrap();
    let (long, short, middle) = (take(60_000), take(10_000), take(20_000));
    between(60_000, 60_000);
    middle.unlock().unwrap();
    between(60_000, 60_000);
    let middle = take(20_000);
    long.unlock().unwrap();
    between(20_000, 20_000);
    short.unlock().unwrap();
    between(20_000, 20_000);
    let watched = read.owned().lock().unwrap();
    between(30_000, 30_000);
    middle.unlock().unwrap();
    between(30_000, 30_000);
    watched.unlock().unwrap();
    assert_eq!(ttl_ms(server, &name), -2);
}

#[test]
fn a_shorter_inner_read_cuts_nothing_when_another_reader_leaves() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let read = sides(&client(), &name).0;
    let outer = read.with_lease(ms(60_000)).lock().unwrap();
    let other = read.with_lease(ms(5_000)).owned().lock().unwrap();
    let inner = read.with_lease(ms(2_000)).lock().unwrap();
    // A release leaves the lock a time to live that covers the keys of the other holds.
    other.unlock().unwrap();
    let left = ttl_ms(server, &name);
    assert!((50_000..=60_000).contains(&left), "the outer hold was promised a minute: {left} ms");
    assert!(outer.is_held());
    inner.unlock().unwrap();
    outer.unlock().unwrap();
}

#[test]
fn giving_a_read_hold_back_neither_ends_nor_shortens_writing() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (read, write) = sides(&brisk_client(), &name);
    let others = sides(&client(), &name);
    // Renewed.
    let writing = write.lock().unwrap();
    read.lock().unwrap().unlock().unwrap();
    let until = Instant::now() + TTL * 3 / 2;
    while Instant::now() < until {
        assert!(!is_free(&others.0) && !is_free(&others.1));
        assert!(ttl_ms(server, &name) > 0 && writing.is_held());
    }
    writing.unlock().unwrap();

    // With leases, the write hold the longest.
    let writing = write.with_lease(ms(5_000)).lock().unwrap();
    let short = [read.with_lease(ms(500)).lock().unwrap(), read.with_lease(ms(500)).lock().unwrap()];
    let [first, second] = short;
    first.unlock().unwrap();
    assert!(ttl_ms(server, &name) > 4_000);
    assert!(others.0.try_lock_for(ms(800)).unwrap().is_none(), "the read holds' time is over, writing goes on");
    assert!(writing.is_held() && second.is_held(), "both guards are one hold");
    second.unlock().unwrap();
    assert!(ttl_ms(server, &name) > 3_000);
    writing.unlock().unwrap();
    assert!(is_free(&others.1));
}

#[test]
fn expired_read_hold_is_restored_when_the_writer_steps_down() {
    let (server, own) = (RedisServer::shared(), brisk_client());
    let others = client();
    let check = |what: &str, take: &dyn Fn(&Lock) -> Guard, prolong: &dyn Fn(&Guard)| {
        let name = fresh("rw");
        let (read, write) = sides(&own, &name);
        let writing = write.with_lease(ms(60_000)).lock().unwrap();
        let reading = take(&read);
        let key = hold_key(&name, reading.owner(), 1);
        eventually(SOON, "the read hold's own time is over", || ttl_ms(server, &key) == -2);
        prolong(&reading);
        writing.unlock().unwrap();
        assert!(ttl_ms(server, &key) > 20_000, "{what}");
        // A reader that releases checks whether any hold is left.
        let (other_read, other_write) = sides(&others, &name);
        other_read.lock().unwrap().unlock().unwrap();
        assert!(reading.is_held() && !is_free(&other_write), "{what}: a writer beside a reader");
        reading.unlock().unwrap();
        assert!(is_free(&other_write), "{what}");
    };
    let leased = |read: &Lock| read.with_lease(ms(300)).lock().unwrap();
    let extend = |reading: &Guard| reading.extend(ms(50_000)).unwrap();
    check("extended", &leased, &extend);
    check("with a limit", &|read| read.with_max_hold(ms(500)).lock().unwrap(), &extend);
}

#[test]
fn an_unanswered_step_down_admits_readers_after_the_outage() {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let away = Client::builder(&proxy.url()).command_timeout(ms(1_000)).drop_timeout(ms(100)).connect().unwrap();
    let others = sides(&Client::connect(&server.url()).unwrap(), "job");
    for drops in [false, true] {
        let (read, write) = sides(&away, "job");
        let (writing, reading) = (write.lock().unwrap(), read.lock().unwrap());
        let lost = proxy.rule(When::script().always(), Then::SwallowRequest);
        if drops {
            drop(writing);
        } else {
            assert!(writing.unlock().is_err());
        }
        lost.remove();
        assert!(!is_free(&others.1), "the reader still holds");
        assert!(others.0.try_lock_for(SOON).unwrap().is_some(), "others may read, too");
        assert!(reading.is_held());
        reading.unlock().unwrap();
        assert!(is_free(&others.1));
    }
}

#[test]
fn reading_goes_on_and_is_renewed_after_writing_ended() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (read, write) = sides(&brisk_client(), &name);
    let others = sides(&client(), &name);
    let (writing, reading) = (write.lock().unwrap(), read.lock().unwrap());
    writing.unlock().unwrap();
    let (inner, beside) = (read.lock().unwrap(), read.owned().lock().unwrap());
    let keys = [(reading.owner(), 1), (reading.owner(), 2), (beside.owner(), 1)];
    let keys = keys.map(|(owner, number)| hold_key(&name, owner, number));
    let until = Instant::now() + TTL * 3 / 2;
    while Instant::now() < until {
        assert!(!is_free(&others.1) && reading.is_held() && beside.is_held());
        assert!(keys.iter().all(|key| ttl_ms(server, key) > 0));
    }
    drop((inner, beside));
    reading.unlock().unwrap();
    assert!(is_free(&others.1));
}

#[test]
fn an_expired_read_hold_blocks_no_other_owner() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (ours, theirs) = (client(), client());
    let ((read, _), (other_read, write)) = (sides(&ours, &name), sides(&theirs, &name));
    read.with_lease(ms(2_000)).lock().unwrap().keep_until_expiry();
    let dead = state(server, &name).into_keys().find(|field| field != "mode").unwrap();
    let beside = other_read.lock().unwrap();
    eventually(SOON, "the time to live is over", || ttl_ms(server, &hold_key(&name, &dead, 1)) == -2);
    assert!(state(server, &name).contains_key(&dead), "the field still exists");
    // The same thread reads again and gives back once.
    read.lock().unwrap().unlock().unwrap();
    beside.unlock().unwrap();
    assert!(is_free(&write), "no reader is left");
    assert_eq!(ttl_ms(server, &name), -2);
}

#[test]
fn a_kept_write_side_ends_while_its_thread_reads_on() {
    let name = fresh("rw");
    let (read, write) = sides(&client(), &name);
    let others = sides(&client(), &name).0;
    let (writing, reading) = (write.with_lease(ms(1_000)).lock().unwrap(), read.lock().unwrap());
    writing.keep_until_expiry();
    assert!(!is_free(&others));
    let (waited, beside) = timed(|| others.try_lock_for(SOON).unwrap().expect("nobody writes any more"));
    assert!(waited <= ms(1_500) + SCHEDULING, "{waited:?}");
    assert!(reading.is_held() && beside.is_held());
    reading.unlock().unwrap();
}

#[test]
fn a_kept_write_side_ends_beside_an_answer_that_comes_late() {
    let (proxy, name) = (Proxy::start(RedisServer::shared().address()), fresh("rw"));
    let (read, write) = sides(&Client::connect(&proxy.url()).unwrap(), &name);
    let others = sides(&client(), &name).0;
    let writing = write.with_lease(ms(1_000)).lock().unwrap();
    let (reading, ends) = (read.lock().unwrap(), read.lock().unwrap());
    writing.keep_until_expiry();
    let late = proxy.rule(When::script().containing(&name), Then::DelayReply(ms(1_250)));
    // The request says that the write side is held; by the answer it is over.
    ends.unlock().unwrap();
    assert_eq!(late.hits(), 1);
    let (waited, beside) = timed(|| others.try_lock_for(SOON).unwrap().expect("nobody writes any more"));
    assert!(waited <= ms(1_500) + SCHEDULING, "{waited:?}");
    assert!(reading.is_held() && beside.is_held());
}

#[test]
fn a_reentry_counts_no_side_that_ends_before_its_turn() {
    let (proxy, name) = (Proxy::start(RedisServer::shared().address()), fresh("rw"));
    let (read, write) = sides(&Client::connect(&proxy.url()).unwrap(), &name);
    let writing = write.with_lease(ms(1_000)).lock().unwrap();
    let reading = read.lock().unwrap();
    writing.keep_until_expiry();
    let extension = When::script().that(|sent| sent.text(5) == "2345");
    let late = proxy.rule(extension.always(), Then::HoldReply);
    let hold = reading.hold();
    thread::scope(|scope| {
        let extends = scope.spawn(move || hold.extend(ms(2_345)));
        late.wait_hit(SOON);
        scope.spawn(|| {
            thread::sleep(ms(2_300));
            late.release();
        });
        thread::sleep(ms(800)); // the nap of the re-entry ends behind the request that ends the write side
        drop(read.lock().unwrap());
        drop(joined(extends)); // it may end without an answer
    });
    assert_eq!(reading.lost(), None);
}

#[test]
fn a_kept_side_stays_held_while_the_other_is_released() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (read, write) = sides(&client(), &name);
    let others = sides(&client(), &name);
    let lease = Duration::from_secs(20);
    // The write side is kept; the two read holds are released one after the other.
    let (writing, reading) = (write.with_lease(lease).lock().unwrap(), [read.lock().unwrap(), read.lock().unwrap()]);
    writing.keep_until_expiry();
    for guard in reading {
        guard.unlock().unwrap();
        assert!(!is_free(&others.0) && !is_free(&others.1), "{:?}", state(server, &name));
    }
    assert!((15_000..=20_000).contains(&ttl_ms(server, &name)));
    assert!(others.1.force_unlock().unwrap());

    // Both sides are kept, the read side last; a third hold is given back.
    let (writing, kept, reading) = (write.lock().unwrap(), read.lock().unwrap(), read.lock().unwrap());
    writing.keep_until_expiry();
    kept.keep_until_expiry();
    reading.unlock().unwrap();
    assert!(!is_free(&others.0) && !is_free(&others.1), "{:?}", state(server, &name));
    assert!(others.1.force_unlock().unwrap());

    // The read side is kept, writing ends: others may read, but not write.
    let (writing, kept) = (write.lock().unwrap(), read.lock().unwrap());
    kept.keep_until_expiry();
    writing.unlock().unwrap();
    assert!(is_free(&others.0) && !is_free(&others.1), "{:?}", state(server, &name));
    assert!(others.0.force_unlock().unwrap());
}
