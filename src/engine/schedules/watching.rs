//! Grants and names that arrive while the watchdog looks and goes to sleep: no event is left in the inbox.
#![cfg(all(test, shuttle))]

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use shuttle::thread;

use super::{START, check};
use crate::conn::sleeper;
use crate::engine::hold::HoldState;
use crate::engine::keeper::watchdog::Watchdog;
use crate::name::LockName;
use crate::owner::{HoldNumber, OwnerId};
use crate::script::Side;
use crate::state::ledger::{Ledger, Promise};
use crate::time::{Instant, Lease};

fn hold(number: u64) -> Arc<HoldState> {
    let lease = Lease::new(Duration::from_secs(30)).unwrap();
    let promise = Promise::Renewed { until: None };
    let (ledger, _) = Ledger::granted(lease, Instant::now(), lease, Side::Exclusive, promise);
    let owner = (HoldNumber(number), OwnerId::encoded("me"));
    HoldState::for_test(&LockName::new("n").unwrap(), owner, None, START, ledger)
}

fn news_and_grants(each: u64) {
    let _pretence = START.pretend();
    let watchdog = Arc::new(Watchdog::default());
    let (waker, sleeper) = sleeper().unwrap();
    watchdog.is_read_by(waker);
    let holds: Vec<_> = (0..each).map(hold).collect();
    let mut threads = vec![];
    for held in holds.clone() {
        let watchdog = Arc::clone(&watchdog);
        threads.push(thread::spawn(move || _ = watchdog.granted(&held)));
    }
    for number in 0..each {
        let watchdog = Arc::clone(&watchdog);
        let name = LockName::new(&format!("n{number}")).unwrap();
        threads.push(thread::spawn(move || watchdog.verify([name])));
    }
    threads.push(thread::spawn(move || {
        let (mut names, mut granted, mut now) = (HashSet::new(), 0, START);
        loop {
            watchdog.take();
            names.extend(watchdog.take_names(now, |_| 1));
            // After some looks without a grant the watchdog goes to sleep, so the next grant must wake it.
            now = now.after(Duration::from_millis(100));
            granted += watchdog.take_old_enough(now).len() as u64;
            if names.len() as u64 == each && granted == each {
                return;
            }
            while watchdog.next_look().is_none() && !sleeper.was_woken() {
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
