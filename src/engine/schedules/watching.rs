//! Grants and names that arrive while the watchdog looks and goes to sleep: no event is left in the inbox.
#![cfg(all(test, shuttle))]

use std::collections::HashSet;
use std::sync::Arc;

use shuttle::thread;

use super::{START, check};
use crate::conn::sleeper;
use crate::engine::hold::HoldState;
use crate::engine::keeper::watchdog::inbox::Inbox;
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId};
use crate::script::Side;
use crate::state::ledger::{Ledger, Promise};
use crate::time::{Instant, Lease};

fn hold(number: u64) -> Arc<HoldState> {
    let lease = Lease::new(std::time::Duration::from_secs(30)).unwrap();
    let promise = Promise::Renewed { until: None };
    let (ledger, _) = Ledger::granted(lease, Instant::now(), lease, Side::Exclusive, promise);
    let owner = (HoldNumber(number), OwnerId::encoded("me"));
    HoldState::for_test(&LockName::new("n").unwrap(), owner, None, START, ledger)
}

fn news_and_grants(each: u64) {
    let _pretence = START.pretend();
    let inbox = Arc::new(Inbox::default());
    let (waker, sleeper) = sleeper().unwrap();
    inbox.is_read_by(waker);
    let holds: Vec<_> = (0..each).map(hold).collect();
    let mut threads = vec![];
    for held in holds.clone() {
        let inbox = Arc::clone(&inbox);
        threads.push(thread::spawn(move || _ = inbox.granted(&held)));
    }
    for number in 0..each {
        let inbox = Arc::clone(&inbox);
        let name = LockName::new(&format!("n{number}")).unwrap();
        threads.push(thread::spawn(move || inbox.ask([name])));
    }
    threads.push(thread::spawn(move || {
        let (mut names, mut granted) = (HashSet::new(), 0);
        loop {
            inbox.take();
            names.extend(inbox.take_names(START));
            // The watchdog goes to sleep at every look, so the next grant must wake it.
            granted += inbox.take_granted(true).len() as u64;
            if names.len() as u64 == each && granted == each {
                return;
            }
            while inbox.awaits_grants() && !sleeper.was_woken() {
                thread::yield_now();
            }
        }
    }));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn the_watchdog_sees_new_holds() {
    check(2_000, || news_and_grants(3));
}
