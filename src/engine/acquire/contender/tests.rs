//! A caller that stands back reads the owner of the lock: the cost of a server that does not answer this request.
#![cfg(test)]

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::client::Client;
use crate::conn::scripted::{Reaction, Scripted};
use crate::error::ErrorKind;

const SOON: Duration = Duration::from_secs(10);

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
            _ => Reaction::Reply("*1\r\n:1\r\n"),
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
