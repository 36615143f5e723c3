//! Many fail-overs in a row: what is copied is kept, waiters wake at the new master, and no old master grants.

use std::fmt;

use lockson_harness::{Inside, SentinelSet, Witness};

use super::{await_listener, builder};
use crate::campaign::Campaign;
use crate::support::prelude::*;

const HELD: usize = 20;
const WAITED_FOR: usize = 5;

/// How the master ends, and how it comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Killed; it comes back as a replica.
    Killed,
    /// Killed; it comes back empty, and calls itself master for a while.
    KilledAndEmpty,
    /// Stopped; it goes on as a master that knows of no other.
    Stopped,
}

#[test]
#[ignore = "make topology"]
fn fail_overs_lose_nothing_and_grant_nothing_twice() {
    let mut campaign = Campaign::start("fail-overs by Sentinel", 100, 25);
    let set = SentinelSet::start(1, 3);
    let witness = Witness::at(set.sentinels()[0].data_folder().join("witness"));
    let (holder, others) = (builder(&set.url()).connect().unwrap(), builder(&set.url()).connect().unwrap());
    let mut times = Times::default();
    let mut round = 0;
    while campaign.goes_on() {
        let way = match round % 5 {
            2 => Way::KilledAndEmpty,
            4 => Way::Stopped,
            _ => Way::Killed,
        };
        round += 1;
        fail_over(&set, &holder, &others, &witness, way, &mut times);
        campaign.passed(1);
    }
    witness.assert_no_violation();
    campaign.end(format!("0 of {} held locks lost, no overlap; {times}", round * HELD));
}

fn fail_over(set: &SentinelSet, holder: &Client, others: &Client, witness: &Witness, way: Way, times: &mut Times) {
    let master = set.master().expect("there is a master");
    let names: Vec<String> = (0..HELD).map(|_| fresh("held")).collect();
    let held: Vec<(Guard, Inside)> =
        names.iter().map(|name| (holder.get_lock(name).lock().unwrap(), witness.enter(name))).collect();
    thread::scope(|scope| {
        let waiters: Vec<_> = names[..WAITED_FOR]
            .iter()
            .map(|name| {
                scope.spawn(move || {
                    let guard = others.get_lock(name).try_lock_for(LONG).unwrap().expect("it is given back");
                    let granted = Instant::now();
                    witness.enter(name).leave();
                    guard.unlock().unwrap();
                    granted
                })
            })
            .collect();
        names[..WAITED_FOR].iter().for_each(|name| await_listener(set.server(master), name));
        set.wait_for_sync();
        let ended = Instant::now();
        if way == Way::Stopped {
            set.server(master).pause()
        } else {
            set.server(master).kill()
        }
        let elected = scope.spawn(move || {
            set.wait_for_another_master(master);
            ended.elapsed()
        });
        // A client that is idle, and one whose question is on its way.
        let granted: Vec<Duration> = [holder, others]
            .map(|client| {
                scope.spawn(move || {
                    let guard = client.get_lock(fresh("free")).try_lock_for(LONG).unwrap().expect("nobody has it");
                    let took = ended.elapsed();
                    guard.unlock().unwrap();
                    took
                })
            })
            .into_iter()
            .map(joined)
            .collect();
        times.add(joined(elected), granted);
        match way {
            Way::Killed => {}
            Way::KilledAndEmpty => set.server(master).start_again(),
            Way::Stopped => set.server(master).resume(),
        }
        // The old master would grant each of these.
        for name in names.iter().cycle().take(HELD * 5) {
            if let Some(guard) = others.get_lock(name).try_lock().unwrap() {
                witness.enter(name).leave();
                guard.unlock().unwrap();
                panic!("{name} was granted twice after {way:?}");
            }
        }
        for ((guard, inside), name) in held.into_iter().zip(&names) {
            assert_eq!(guard.lost(), None, "{name} after {way:?}");
            inside.leave();
            guard.unlock().unwrap_or_else(|error| panic!("{name} after {way:?}: {error}"));
        }
        let released = Instant::now();
        for waiter in waiters {
            let took = joined(waiter).saturating_duration_since(released);
            assert!(took < Duration::from_secs(2), "a waiter woke {took:?} after the release");
        }
    });
    match way {
        Way::Killed => set.rejoin(master),
        Way::KilledAndEmpty | Way::Stopped => set.follow_master(master),
    }
    set.wait_until_ready();
}

/// The times from the end of a master to the vote for another one, and to each first grant.
#[derive(Debug, Default)]
struct Times {
    elected: Vec<Duration>,
    granted: Vec<Duration>,
    /// How much later than the vote the last grant came.
    added: Vec<Duration>,
}

impl Times {
    fn add(&mut self, elected: Duration, granted: Vec<Duration>) {
        let last = granted.iter().copied().max().unwrap_or_default();
        let added = last.saturating_sub(elected);
        assert!(added < SCHEDULING, "granted {added:?} after the vote");
        self.elected.push(elected);
        self.granted.extend(granted);
        self.added.push(added);
    }
}

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let within = self.granted.iter().filter(|took| **took <= Duration::from_secs(3)).count();
        write!(
            f,
            "granted after {}, {within} of {} within 3 s; the vote took {}; the client added {}",
            Spread(&self.granted),
            self.granted.len(),
            Spread(&self.elected),
            Spread(&self.added)
        )
    }
}

/// Least, median, nine tenths and most.
struct Spread<'a>(&'a [Duration]);

impl fmt::Display for Spread<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut sorted = self.0.to_vec();
        sorted.sort();
        let at = |tenths: usize| sorted.get((sorted.len() * tenths / 10).min(sorted.len() - 1)).copied();
        let [least, half, most_of, most] = [0, 5, 9, 10].map(|tenths| at(tenths).unwrap_or_default().as_secs_f64());
        write!(f, "{least:.2} to {most:.2} s (median {half:.2}, nine tenths {most_of:.2})")
    }
}

const LONG: Duration = Duration::from_secs(60);
