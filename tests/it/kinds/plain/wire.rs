//! The state in Redis is Redisson's, byte for byte.

use redis::PubSub;

use crate::support::prelude::*;

#[test]
fn the_key_is_a_hash_of_one_owner_and_its_count() {
    let (server, client, name) = (RedisServer::shared(), client(), fresh("wire"));
    let lock = client.get_lock(&name);
    let mut guards = vec![];
    for count in 1..=3 {
        guards.push(lock.lock().unwrap());
        let kind: String = server.query(&["TYPE", &name]);
        assert_eq!(kind, "hash");
        assert_eq!(fields(server, &name), [(guards[0].owner().to_owned(), count.to_string())]);
        assert!((29_000..=30_000).contains(&ttl_ms(server, &name)));
    }
    for count in (1..=2).rev() {
        drop(guards.pop());
        assert_eq!(fields(server, &name), [(guards[0].owner().to_owned(), count.to_string())]);
    }
    drop(guards.pop());
    assert_eq!(ttl_ms(server, &name), -2, "nothing is left of the lock");
}

#[test]
fn the_last_release_and_only_that_publishes_a_zero() {
    let forms =
        ["wire", "{tag}:wire", "a{b}c", "brace{", "}brace", "}{", "{}", "two words\r\n\0", "glob*?[a]", "\u{1f512}"];
    for name in forms.map(fresh) {
        let server = RedisServer::shared();
        let mut stranger = server.connection();
        let mut messages = stranger.as_pubsub();
        messages.subscribe(channel(&name)).unwrap();
        let lock = client().get_lock(&name);
        let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
        inner.unlock().unwrap();
        assert!(lock.with_lease(ms(50_000)).try_lock().unwrap().is_some());
        outer.unlock().unwrap();
        assert_eq!(next(&mut messages), b"0", "{name:?}");

        let _guard = lock.lock().unwrap();
        assert!(lock.force_unlock().unwrap() && !lock.force_unlock().unwrap());
        assert_eq!(next(&mut messages), b"0", "forced open: {name:?}");
        server.run(&["PUBLISH", &channel(&name), "end"]);
        assert_eq!(next(&mut messages), b"end", "no other message: {name:?}");
    }
}

#[test]
fn a_hold_of_java_is_respected_and_waited_for() {
    let client = client();
    let took = median(9, |_| after_java(&client));
    assert!(took <= ms(200) + STANDSTILLS, "woken by the message, not by the clock: {took:?}");
}

/// The time from Redisson's release to the grant of a waiter here.
fn after_java(client: &lockson::Client) -> Duration {
    let (server, name) = (RedisServer::shared(), fresh("wire"));
    let java = "6f1c0d5e-8a0b-4f5e-9d3c-2b1a00c0ffee:77";
    server.run(&["HSET", &name, java, "2"]);
    server.run(&["PEXPIRE", &name, "30000"]);
    let lock = client.get_lock(&name);
    assert!(lock.try_lock().unwrap().is_none());
    let holder = lock.holder().unwrap().unwrap();
    assert_eq!((holder.owner(), holder.hold_count()), (java, 2));
    assert_eq!(kind_of(lock.unlock()), ErrorKind::NotHeld);
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| lock.try_lock_for(SOON).unwrap().is_some());
        eventually(SOON, "it listens", || server.subscribers(&channel(&name)) == 1);
        // The effect of Redisson's last release.
        let (took, got) = timed(|| {
            server.run(&["DEL", &name]);
            server.run(&["PUBLISH", &channel(&name), "0"]);
            joined(waiter)
        });
        assert!(got);
        took
    })
}

#[test]
fn a_count_that_java_wrote_without_us_is_no_number_to_trip_over() {
    let (server, name) = (RedisServer::shared(), fresh("wire"));
    let lock = client().get_lock(&name);
    for odd in ["9223372036854775807", "-1", "many", ""] {
        server.run(&["HSET", &name, "somebody:1", odd]);
        assert!(lock.try_lock().unwrap().is_none(), "{odd:?}");
        assert!(lock.is_locked().unwrap());
        assert_eq!(lock.holder().unwrap().expect("somebody holds it").owner(), "somebody:1");
        assert!(lock.force_unlock().unwrap());
    }
    // Lockson's own field, damaged: the count is absolute, so the next request repairs the field.
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    server.run(&["HSET", &name, outer.owner(), "many"]);
    inner.unlock().unwrap();
    assert_eq!(fields(server, &name), [(outer.owner().to_owned(), "1".to_owned())]);
    server.run(&["HSET", &name, outer.owner(), "many"]);
    outer.unlock().unwrap();
    assert_eq!(ttl_ms(server, &name), -2);
}

#[test]
fn a_handle_shows_itself_in_a_few_words() {
    let client = client();
    let lock = client.get_lock(fresh("wire")).with_lease(ms(5_000));
    let guard = lock.lock().unwrap();
    let hold = guard.hold().clone();
    let shown = [format!("{lock:?}"), format!("{guard:?}"), format!("{hold:?}"), format!("{:?}", lock.owned())];
    for text in shown {
        assert!(text.contains(lock.name()), "{}", &text[..text.len().min(300)]);
        assert!(text.len() < 500, "{} bytes: {} ...", text.len(), &text[..300]);
    }
}

/// The next message of a stranger's subscription.
fn next(messages: &mut PubSub<'_>) -> Vec<u8> {
    messages.get_message().unwrap().get_payload_bytes().to_vec()
}
