//! Waits and grants with scripted replies: looks while standing back, pauses of spin locks, holds that a grant ends.
#![cfg(test)]

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::conn::scripted::{Reaction, Scripted};
use crate::durability::Durability;
use crate::error::{ErrorKind, Loss};
use crate::event::{LockLost, Observer};

const SOON: Duration = Duration::from_secs(10);
const GRANTED: &str = "*1\r\n:1\r\n";

/// A client that stands back for two others, with a server that does not answer the query for the owner; with
/// `is_mute` the server answers nothing after that. Returns the duration and the outcome of a bounded wait.
fn stands_back_at_a_mute_server(is_mute: bool, wait: Duration) -> (Duration, crate::Result<bool>) {
    const PATIENT: Duration = Duration::from_secs(3);
    for _ in 0..200 {
        let (mute, looked) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)));
        let has_looked = Arc::clone(&looked);
        let server = Scripted::start(move |seen| match (seen.words.len(), seen.words[0].as_str()) {
            _ if mute.load(Ordering::Relaxed) => Reaction::Mute,
            // Hash, one key, name; then owner and counts, which only a release is given.
            (10, _) => Reaction::Reply("*2\r\n:1\r\n:2\r\n"),
            (_, "HRANDFIELD") => {
                mute.store(is_mute, Ordering::Relaxed);
                looked.store(true, Ordering::Relaxed);
                Reaction::Mute
            }
            _ => Reaction::Reply(GRANTED),
        });
        let client = Client::builder(&server.url()).command_timeout(PATIENT).connect_lazily().unwrap();
        let lock = client.get_lock("scene");
        for _ in 0..2 {
            let guard = lock.lock().unwrap();
            std::thread::sleep(Duration::from_millis(3)); // longer than the shortest turn, so that the release ends the turn
            guard.unlock().unwrap();
        }
        let began = Instant::now();
        let outcome = lock.try_lock_for(wait).map(|guard| guard.is_some());
        // On a busy machine the turn of the others may be over before.
        if has_looked.load(Ordering::Relaxed) {
            return (began.elapsed(), outcome);
        }
    }
    panic!("nobody looked");
}

#[test]
fn a_look_in_vain_leaves_most_of_the_bound() {
    let (took, outcome) = stands_back_at_a_mute_server(false, SOON);
    assert!(outcome.unwrap(), "it is free");
    assert!(took < Duration::from_millis(2_500), "{took:?}");
}

#[test]
fn a_look_at_a_mute_server_keeps_the_bound() {
    let wait = Duration::from_millis(300);
    let (took, outcome) = stands_back_at_a_mute_server(true, wait);
    assert_eq!(outcome.unwrap_err().kind(), ErrorKind::Unknown);
    assert!(took < wait + Duration::from_secs(3) + Duration::from_secs(1), "{took:?}");
}

#[test]
fn a_grant_in_vain_is_given_back_within_the_bounds() {
    let mute = AtomicBool::new(false);
    let server = Scripted::start(move |seen| match seen.words[0].as_str() {
        _ if mute.load(Ordering::Relaxed) => Reaction::Mute,
        "WAIT" => {
            mute.store(true, Ordering::Relaxed);
            Reaction::Reply(":0\r\n")
        }
        "EVAL" => Reaction::Reply(":1\r\n"),
        _ => Reaction::Reply(GRANTED),
    });
    let builder = Client::builder(&server.url()).command_timeout(Duration::from_millis(200));
    let client = builder.drop_timeout(6 * SOON).connect_lazily().unwrap();
    let copied = Durability::replicas(1).within(Duration::from_millis(50));
    let began = Instant::now();
    let error = client.get_lock("scene").with_durability(copied).try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotDurable, "{error}");
    assert!(began.elapsed() < SOON, "{:?}", began.elapsed());
}

#[test]
fn a_grant_ends_the_older_holds_that_it_excludes() {
    let server = Scripted::start(|_| Reaction::Reply(GRANTED));
    let client = Client::builder(&server.url()).connect_lazily().unwrap();
    for (older, newer, ends) in [
        ("plain", "plain", true),
        ("write", "write", true),
        ("write", "read", true),
        ("read", "write", true),
        ("read", "read", false),
    ] {
        let take = |side| {
            let lock = client.get_read_write_lock("both");
            let lock = match side {
                "read" => lock.read(),
                "write" => lock.write(),
                _ => client.get_lock("plain"),
            };
            // Of no thread, so the second call is no re-entry.
            lock.with_lease(SOON).owned().lock().unwrap()
        };
        let (older_hold, newer_hold) = (take(older), take(newer));
        let lost = (older_hold.lost(), newer_hold.lost());
        assert_eq!(lost, (ends.then_some(Loss::Taken), None), "{newer} after {older}");
        older_hold.keep_until_expiry();
        newer_hold.keep_until_expiry();
    }
}

/// Does something at each loss.
struct AtLosses<F>(F);

impl<F> fmt::Debug for AtLosses<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AtLosses")
    }
}

impl<F: Fn() + Send + Sync + 'static> Observer for AtLosses<F> {
    fn lost(&self, _: &LockLost) {
        (self.0)();
    }
}

/// A hold is lost unnoticed, and its lock is granted again, to a thread. The observer of the loss gets the client.
/// Returns the requests.
fn observed_loss(act: fn(&Client)) -> Vec<Vec<String>> {
    let server = Scripted::start(|seen| match seen.words.len() {
        RELEASE => Reaction::Reply("*2\r\n:1\r\n:2\r\n"),
        REENTRY => Reaction::Reply(":1\r\n"),
        _ => Reaction::Reply(GRANTED),
    });
    let slot = Arc::new(OnceLock::<Client>::new());
    let of_observer = Arc::clone(&slot);
    let builder = Client::builder(&server.url());
    let client = builder.observer(AtLosses(move || act(of_observer.get().unwrap()))).connect_lazily().unwrap();
    slot.set(client.clone()).unwrap();
    let lock = client.get_lock("scene").with_lease(SOON);
    let older = lock.owned().lock().unwrap();
    let newer = lock.lock();
    assert_eq!(older.lost(), Some(Loss::Taken));
    drop(newer);
    client.close();
    server.seen().into_iter().map(|seen| seen.words).collect()
}

#[test]
fn a_close_by_the_observer_of_a_loss_releases_the_new_grant() {
    let seen = observed_loss(Client::close);
    let owner = |words: &&Vec<String>| words.len() == ACQUIRE;
    let newer = seen.iter().rfind(owner).unwrap()[5].clone();
    assert!(seen.iter().any(|words| words.len() == RELEASE && words[4] == newer), "{seen:?}");
}

#[test]
fn the_observer_of_a_loss_may_take_the_lock_that_was_granted() {
    let seen = observed_loss(|client| {
        client.get_lock("scene").with_lease(SOON).try_lock_for(SOON).unwrap().unwrap().unlock().unwrap();
    });
    assert!(seen.iter().any(|words| words.len() == REENTRY), "{seen:?}");
}

/// The words of requests for a plain lock: command, hash, one key, name, and the arguments.
const ACQUIRE: usize = 6;
const REENTRY: usize = 7;
const RELEASE: usize = 10;
