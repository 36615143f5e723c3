//! The server's own command that compares and deletes, on the servers with such a command.

use super::{Version, versions};
use crate::support::prelude::*;

#[test]
fn the_servers_own_command_opens_only_the_lock_of_its_holder() {
    for_each_that_can(|server, word| {
        let client = brisk(server).connect().unwrap();
        let lock = by_server(&client, "own");
        let guard = lock.lock().unwrap();
        let value: String = server.query(&["GET", "own"]);
        assert_eq!(value, guard.owner());
        let other = by_server(&brisk(server).connect().unwrap(), "own");
        assert!(other.try_lock_for(ms(50)).unwrap().is_none());
        assert_eq!(other.holder().unwrap().expect("the lock is held").owner(), guard.owner());
        guard.unlock().unwrap();
        assert_eq!(server.keys(), Vec::<String>::new());
        assert_eq!(server.calls_of(word), 1);
        for script in ["eval", "evalsha"] {
            assert_eq!(server.calls_of(script), 0);
        }

        let guard = lock.lock().unwrap();
        server.run(&["SET", "own", "theirs"]);
        assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Taken));
        let value: String = server.query(&["GET", "own"]);
        assert_eq!(value, "theirs");
        assert!(lock.try_lock_for(ms(50)).unwrap().is_none());
        assert!(lock.force_unlock().unwrap());

        let guard = lock.lock().unwrap();
        server.run(&["DEL", "own"]);
        assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Gone));
    });
}

#[test]
fn wrong_type_is_refused_on_acquire_and_taken_on_release() {
    for_each_that_can(|server, word| {
        let client = brisk(server).connect().unwrap();
        let lock = by_server(&client, "data");
        // In one step, because a watched holder learns of a deletion at once.
        let replace = "redis.call('del', KEYS[1]) redis.call('lpush', KEYS[1], 'precious')";
        let replaced = || server.run(&["EVAL", replace, "1", "data"]);
        server.run(&["LPUSH", "data", "precious"]);
        let error = lock.try_lock().unwrap_err();
        assert_eq!((error.kind(), error.redis_word()), (ErrorKind::Refused, Some("WRONGTYPE")), "{word}: {error}");
        server.run(&["DEL", "data"]);
        let guard = lock.lock().unwrap();
        replaced();
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Taken), "{word}");
        drop(guard);
        server.run(&["DEL", "data"]);
        let guard = by_server(&client, "data").lock().unwrap();
        replaced();
        assert_eq!(kind_of(guard.unlock()), ErrorKind::Lost(Loss::Taken), "{word}");
        let length: i64 = server.query(&["LLEN", "data"]);
        assert_eq!(length, 1);
    });
}

fn by_server(client: &Client, name: &str) -> Lock {
    client.get_token_lock_with(name, TokenOptions::new().with_release_by(ReleaseBy::Server)).with_lease(SOON)
}

fn for_each_that_can(check: impl Fn(&RedisServer, &str)) {
    for version in versions() {
        if let Some(word) = word_of(&version) {
            eprintln!("{}: {word}", version.label);
            check(&version.start(), word);
        }
    }
}

/// The command of this version, by the server's own documentation.
pub(crate) fn word_of(version: &Version) -> Option<&'static str> {
    let (product, number) = version.label.split_once(' ')?;
    let mut parts = number.split('.').map(|part| part.parse::<u32>().expect("a number"));
    match (product, parts.next()?, parts.next()) {
        ("Redis", major, Some(minor)) if (major, minor) >= (8, 4) => Some("delex"),
        ("Valkey", 9.., _) => Some("delifeq"),
        _ => None,
    }
}
