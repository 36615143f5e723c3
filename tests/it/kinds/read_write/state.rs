//! The state in Redis is Redisson's, byte for byte.

use super::{channel, hold_key, is, sides, state};
use crate::support::prelude::*;

#[test]
fn a_reader_is_a_field_and_a_key_for_each_of_its_holds() {
    let (server, client) = alone();
    for name in ["job", "{tag}:job", "a{b}c", "brace{"] {
        let (read, _) = sides(&client, name);
        let outer = read.lock().unwrap();
        let owner = outer.owner().to_owned();
        assert!(owner.starts_with(client.id()));
        assert_eq!(state(&server, name), is(&[(&owner, 1)], "read"));
        let inner = read.with_lease(ms(60_000)).lock().unwrap();
        assert_eq!(inner.owner(), owner);
        assert_eq!(state(&server, name), is(&[(&owner, 2)], "read"));
        let keys = [1, 2].map(|number| hold_key(name, &owner, number));
        for key in &keys {
            assert_eq!(server.query::<String>(&["GET", key]), "1");
            assert!((59_000..=60_000).contains(&ttl_ms(&server, key)), "an inner hold shortens nothing");
        }
        assert!((59_000..=60_000).contains(&ttl_ms(&server, name)));
        let mut all = vec![name.to_owned(), keys[0].clone(), keys[1].clone()];
        all.sort();
        assert_eq!(server.keys(), all, "and nothing else");

        inner.unlock().unwrap();
        assert_eq!(state(&server, name), is(&[(&owner, 1)], "read"));
        assert_eq!(ttl_ms(&server, &keys[1]), -2);
        for key in [name, &keys[0]] {
            assert!((29_000..=30_000).contains(&ttl_ms(&server, key)), "the lease of the outer hold");
        }
        outer.unlock().unwrap();
        assert!(server.keys().is_empty());
    }
}

#[test]
fn a_writer_is_a_field_of_its_own_and_may_read_beside() {
    let (server, client) = alone();
    for name in ["job", "{tag}:job"] {
        let (read, write) = sides(&client, name);
        let outer = write.lock().unwrap();
        let owner = outer.owner().to_owned();
        let writer = format!("{owner}:write");
        assert_eq!(state(&server, name), is(&[(&writer, 1)], "write"));
        let inner = write.lock().unwrap();
        assert_eq!(state(&server, name), is(&[(&writer, 2)], "write"));
        assert!((29_000..=30_000).contains(&ttl_ms(&server, name)));
        assert_eq!(server.keys(), [name], "a writer has no other key");

        let reading = [read.lock().unwrap(), read.lock().unwrap()];
        assert_eq!(reading[0].owner(), owner);
        assert_eq!(state(&server, name), is(&[(&writer, 2), (&owner, 2)], "write"));
        inner.unlock().unwrap();
        assert_eq!(state(&server, name), is(&[(&writer, 1), (&owner, 2)], "write"));
        outer.unlock().unwrap();
        assert_eq!(state(&server, name), is(&[(&owner, 2)], "read"), "the reader still holds");
        for number in [1, 2] {
            assert!((29_000..=30_000).contains(&ttl_ms(&server, &hold_key(name, &owner, number))));
        }
        assert!((29_000..=30_000).contains(&ttl_ms(&server, name)));
        drop(reading);
        assert!(server.keys().is_empty());
    }
}

#[test]
fn a_zero_ends_reading_and_a_one_ends_writing() {
    for name in [fresh("rw"), fresh("{tag}:rw")] {
        let server = RedisServer::shared();
        let mut stranger = server.connection();
        let mut messages = stranger.as_pubsub();
        messages.subscribe(channel(&name)).unwrap();
        let mut check = |expected: &[&str], what: &str| {
            server.run(&["PUBLISH", &channel(&name), "end"]);
            for text in expected.iter().copied().chain(["end"]) {
                assert_eq!(messages.get_message().unwrap().get_payload::<String>().unwrap(), text, "{what}");
            }
        };
        let (ours, theirs) = (client(), client());
        let ((read, write), (their_read, _)) = (sides(&ours, &name), sides(&theirs, &name));

        let (outer, inner) = (read.lock().unwrap(), read.lock().unwrap());
        let other = their_read.lock().unwrap();
        inner.unlock().unwrap();
        outer.unlock().unwrap();
        check(&[], "a reader that releases before other readers");
        other.unlock().unwrap();
        check(&["0"], "the last reader");

        let (outer, inner) = (write.lock().unwrap(), write.lock().unwrap());
        inner.unlock().unwrap();
        check(&[], "an inner write hold");
        outer.unlock().unwrap();
        check(&["1"], "the writer");

        let (writing, reading) = (write.lock().unwrap(), read.lock().unwrap());
        writing.unlock().unwrap();
        check(&["1"], "a writer that reads on lets readers in");
        reading.unlock().unwrap();
        check(&["0"], "and is a reader then");

        let _writing = write.lock().unwrap();
        assert!(write.force_unlock().unwrap());
        check(&["1"], "a writer that was forced out");
        let _reading = their_read.lock().unwrap();
        assert!(read.force_unlock().unwrap());
        check(&["0"], "readers that were forced out");
    }
}

#[test]
fn a_pair_on_either_side_is_two_requests() {
    let server = RedisServer::start();
    let (read, write) = sides(&Client::connect(&server.url()).unwrap(), "pair");
    for lock in [read, write] {
        drop(lock.lock().unwrap()); // from here on the scripts are known
        server.reset_counters();
        for _ in 0..10 {
            lock.lock().unwrap().unlock().unwrap();
        }
        let calls = server.calls();
        let count = |command| calls.get(command).copied().unwrap_or(0);
        assert_eq!(
            (count("evalsha"), count("eval"), count("publish"), count("subscribe")),
            (20, 0, 10, 0),
            "{calls:?}"
        );
    }
}
