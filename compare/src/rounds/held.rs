//! Locks that are held for long: a crowd that waits, many locks, lost messages, and a server that forgets.

use std::thread;
use std::time::{Duration, Instant};

use lockson_harness::proxy::{Proxy, Then, When};
use lockson_harness::threads_of;

use super::{LOSS_PATIENCE, Run, hand_over_once, url_of};
use crate::peer::{CANDIDATES, PATIENCE, figure};
use crate::usage::processor_time;

impl Run<'_> {
    /// Many threads of one process wait for a lock that another process holds.
    pub(super) fn crowds(&mut self) {
        let url = self.url();
        for candidate in CANDIDATES {
            self.step(&format!("{} threads wait: {}", self.plan.crowd, candidate.name));
            let keys = ["crowd-connections", "crowd-threads", "crowd-served"];
            let Some(mut holder) = self.start(candidate, &url, &keys) else { continue };
            let connections = || self.servers[0].clients().len() as f64;
            let before = connections();
            let Some(mut crowd) = self.start(candidate, &url, &keys) else { continue };
            let waits = holder.ask("hold crowd").and_then(|_| crowd.ask(&format!("crowd crowd {}", self.plan.crowd)));
            thread::sleep(CROWD_SETTLING);
            let seen = waits.map(|_| {
                let threads = threads_of(crowd.pid()).unwrap_or(0) as f64;
                (self.servers[0].clients().len() as f64 - before, threads)
            });
            let given = figure(&holder.ask("give crowd"), "at");
            let served = seen.clone().and(given).and_then(|given| {
                let at = figure(&crowd.answer(CROWD_PATIENCE), "at")?;
                Ok((at - given) / 1e6)
            });
            self.table.add(keys[0], candidate.name, seen.clone().map(|seen| seen.0));
            self.table.add(keys[1], candidate.name, seen.map(|seen| seen.1));
            self.table.add(keys[2], candidate.name, served);
        }
    }

    /// Many held locks, of all candidates at the same time: each process has its own memory and processor time.
    pub(super) fn many(&mut self) {
        let url = self.url();
        let keys = ["many-bytes", "many-processor"];
        self.step(&format!("{} held locks", self.plan.many));
        let mut all = vec![];
        for candidate in CANDIDATES {
            if let Some(mut peer) = self.start(candidate, &url, &keys) {
                peer.send(&format!("many {}", self.plan.many));
                all.push((candidate, peer));
            }
        }
        let mut peers = vec![];
        for (candidate, mut peer) in all {
            let bytes = figure(&peer.answer(4 * PATIENCE), "bytes");
            let renews = if peer.renews { Ok(()) } else { Err("the library renews nothing by itself".to_owned()) };
            if let Err(reason) = bytes.clone().and(renews) {
                self.table.add(keys[1], candidate.name, Err(reason));
            } else {
                peers.push((candidate, peer));
            }
            self.table.add(keys[0], candidate.name, bytes);
        }
        self.step("all held locks are renewed");
        let times = || peers.iter().map(|(_, peer)| processor_time(peer.pid())).collect::<Vec<_>>();
        let before = times();
        thread::sleep(RENEWAL);
        let used = times();
        for (((candidate, _), used), before) in peers.iter().zip(used).zip(before) {
            let part = (used - before).as_secs_f64() / RENEWAL.as_secs_f64() * 100.0;
            self.table.add("many-processor", candidate.name, Ok(part));
        }
        drop(peers);
        self.servers[0].run(&["FLUSHALL"]);
    }

    /// A lost wake-up message, and a server that forgets: of all candidates at the same time, as they only wait.
    pub(super) fn losses(&mut self) {
        self.step("lost wake-up messages, and FLUSHALL");
        let proxy = Proxy::start(self.servers[1].address());
        let _lost = proxy.rule(When::message().always(), Then::SwallowReply);
        let [straight, through, forgetful] = [self.servers[1].port(), proxy.port(), self.servers[2].port()].map(url_of);
        let mut lost = vec![];
        let mut forgotten = vec![];
        for candidate in CANDIDATES {
            let ends = (self.start(candidate, &straight, &["lost"]), self.start(candidate, &through, &["lost"]));
            if let (Some(holder), Some(waiter)) = ends {
                lost.push((candidate.name, holder, waiter));
            }
            let ends = [(); 2].map(|()| self.start(candidate, &forgetful, &["two-believe"]));
            if let [Some(mut holder), Some(next)] = ends {
                match holder
                    .ask(&format!("hold {}", candidate.name))
                    .and_then(|_| holder.ask(&believes(candidate.name)))
                {
                    Ok(_) => forgotten.push((candidate.name, holder, next)),
                    Err(reason) => self.table.add("two-believe", candidate.name, Err(reason)),
                }
            }
        }
        let waits = lost.into_iter().map(|(name, mut holder, mut waiter)| {
            let waiting = move || {
                let (begun, mut longest) = (Instant::now(), 0.0_f64);
                // Questions that a waiter repeats come at any moment of the wait.
                for settling in (0..10).map(|each| CROWD_SETTLING + each * Duration::from_millis(130)) {
                    let lost = hand_over_once(&mut holder, &mut waiter, &format!("lost:{name}"), settling)?;
                    longest = longest.max(lost);
                    if begun.elapsed() > LOSS_PATIENCE / 2 {
                        break;
                    }
                }
                Ok(longest)
            };
            (name, thread::spawn(waiting))
        });
        let waits: Vec<_> = waits.collect();
        self.servers[2].run(&["FLUSHALL"]);
        let beliefs = forgotten.into_iter().map(|(name, mut holder, mut next)| {
            let watching = move || {
                next.ask(&format!("hold {name}"))?;
                let granted = Instant::now();
                while figure(&holder.ask(&believes(name)), "told")? == 1.0 {
                    if granted.elapsed() > LOSS_PATIENCE {
                        return Err(format!("over {} s: nothing tells the holder", LOSS_PATIENCE.as_secs()));
                    }
                    thread::sleep(Duration::from_millis(2));
                }
                Ok(granted.elapsed().as_secs_f64())
            };
            (name, thread::spawn(watching))
        });
        let beliefs: Vec<_> = beliefs.collect();
        for (key, results, unit) in [("lost", waits, 1e6), ("two-believe", beliefs, 1.0)] {
            for (name, result) in results {
                let value = result.join().unwrap_or_else(|_| Err("the watch failed".to_owned()));
                self.table.add(key, name, value.map(|value| value / unit));
            }
        }
    }
}

fn believes(name: &str) -> String {
    format!("believes {name}")
}

/// A thousand threads start, ask and sleep.
const CROWD_SETTLING: Duration = Duration::from_secs(2);
const CROWD_PATIENCE: Duration = Duration::from_secs(15);
/// Everyone renews a lease of 30 s every 10 s.
const RENEWAL: Duration = Duration::from_secs(10);
