//! How soon a holder learns of a loss, for each way to lose a lock, beside ten thousand other holds.

use std::fmt::Write;
use std::sync::mpsc::{Receiver, channel as pipe};

use redis::Connection;

use crate::campaign::Campaign;
use crate::support::kinds::{OfName, WATCHED};
use crate::support::prelude::*;

const HOLDS: usize = 10_000;
const TRIALS: usize = 1_000;
/// The promise, at 99 %.
const BOUND: Duration = Duration::from_millis(50);
/// So many trials carry a judgement of 99 %; of fewer, that would judge the slowest moments of the machine.
const ENOUGH: usize = 300;

/// A way to lose one lock: the act of another client, given the name and the lock's handle.
type Way = fn(&mut Connection, &str, &Lock);

const WAYS: [(&str, Way); 8] = [
    ("DEL", |redis, name, _| run(redis, &["DEL", name])),
    ("UNLINK", |redis, name, _| run(redis, &["UNLINK", name])),
    ("SET", |redis, name, _| run(redis, &["SET", name, "another's"])),
    ("another type", |redis, name, _| {
        run(redis, &["EVAL", "redis.call('del', KEYS[1]) redis.call('rpush', KEYS[1], 'x')", "1", name]);
    }),
    ("another owner", |redis, name, _| {
        run(redis, &["EVAL", "redis.call('del', KEYS[1]) redis.call('hset', KEYS[1], 'another:1', 1)", "1", name]);
    }),
    ("force_unlock", |_, _, lock| assert!(lock.force_unlock().unwrap())),
    ("Java's forceUnlock", |redis, name, _| {
        let forced = "if redis.call('del', KEYS[1]) == 1 then redis.call('publish', ARGV[1], '0') end";
        run(redis, &["EVAL", forced, "1", name, &channel(name)]);
    }),
    ("expiry", |redis, name, _| {
        run(redis, &["PEXPIRE", name, "1"]);
        // A look makes the server remove the expired key; without a look the removal comes a little later.
        thread::sleep(ms(3));
        run(redis, &["EXISTS", name]);
    }),
];

fn run(redis: &mut Connection, words: &[&str]) {
    redis::cmd(words[0]).arg(&words[1..]).query::<redis::Value>(redis).expect("redis answers");
}

#[test]
#[ignore = "make soak"]
fn each_loss_is_told_at_once_beside_ten_thousand_holds() {
    let mut campaign = Campaign::start("losses without a message", (WAYS.len() * TRIALS) as u64, 10);
    let (server, stage) = Stage::start();
    let others = Client::connect(&server.url()).unwrap();
    let mut redis = server.connection();
    let mut times = vec![vec![]; WAYS.len()];
    while goes_on(&mut campaign, &times) {
        let which = (0..WAYS.len()).min_by_key(|way| times[*way].len()).unwrap();
        let probes = stage.probes(&server, 10);
        for probe in &probes {
            let way = WAYS[which].0;
            let lock = (probe.kind)(&others, probe.guard.name());
            let mut since = Instant::now();
            if way == "expiry" {
                since += ms(3);
            }
            WAYS[which].1(&mut redis, probe.guard.name(), &lock);
            if way == "expiry" && server.query(&["EXISTS", probe.guard.name()]) {
                continue; // a renewal came just in time, so the hold was not lost
            }
            times[which].push(probe.told_after(way, since));
        }
        campaign.passed(probes.len() as u64);
    }
    assert!(stage.holds.iter().all(|guard| guard.is_held()), "none of the others was lost");
    let outcome = WAYS.iter().zip(&mut times).map(|((name, _), times)| (*name, summed_up(times), times));
    let mut text = format!("told after (half, 99 %, all) beside {HOLDS} holds:");
    for (name, [middle, high, longest], times) in outcome {
        write!(text, "\n  {name:20} {middle:>9.1?} {high:>9.1?} {longest:>9.1?} in {} of {TRIALS}", times.len())
            .unwrap();
        let judged = if times.len() < ENOUGH { middle } else { high };
        // The server looks for expired keys ten times a second, and a name that was asked about rests for a moment.
        assert!(judged < if name == "expiry" { BOUND * 6 } else { BOUND }, "{text}");
    }
    campaign.end(text);
}

#[test]
#[ignore = "make soak"]
fn ten_thousand_holders_learn_of_flush_and_eviction_at_once() {
    let mut campaign = Campaign::start("ten thousand locks lost at once", 3 * TRIALS as u64, 12);
    let ways = ["FLUSHALL", "FLUSHDB", "eviction"];
    let mut times = [vec![], vec![], vec![]];
    let mut last = [vec![], vec![], vec![]];
    while goes_on(&mut campaign, &times) {
        let which = (0..ways.len()).min_by_key(|way| times[*way].len()).unwrap();
        let (server, stage) = Stage::start();
        let probes = stage.probes(&server, 1);
        let since = Instant::now();
        if which < 2 {
            server.run(&[ways[which]]);
        } else {
            evict(&server);
        }
        times[which].extend(probes.iter().map(|probe| probe.told_after(ways[which], since)));
        campaign.passed(probes.len() as u64);
        assert!(stage.holds.iter().all(|guard| guard.wait_lost(SOON).is_some()), "all are told");
        last[which].push(since.elapsed());
    }
    let mut text = format!("told after (half, 99 %, all), one of {HOLDS}:");
    for ((name, times), last) in ways.iter().zip(&mut times).zip(&mut last) {
        let ([middle, high, longest], [all, ..]) = (summed_up(times), summed_up(last));
        write!(text, "\n  {name:20} {middle:>9.1?} {high:>9.1?} {longest:>9.1?} in {} of {TRIALS}", times.len())
            .unwrap();
        write!(text, "; the last of all {HOLDS} after {all:.1?}").unwrap();
    }
    campaign.end(text);
}

/// Each way has its turn, however short the campaign.
fn goes_on(campaign: &mut Campaign, times: &[Vec<Duration>]) -> bool {
    (campaign.goes_on() || times.iter().any(Vec::is_empty)) && times.iter().any(|times| times.len() < TRIALS)
}

/// Has the server throw out all keys to make room.
fn evict(server: &RedisServer) {
    server.run(&["CONFIG", "SET", "maxmemory-policy", "allkeys-random"]);
    server.run(&["CONFIG", "SET", "maxmemory", "1"]);
    let _ = server.try_query::<()>(&["SET", "x", "y"]);
}

fn summed_up(times: &mut [Duration]) -> [Duration; 3] {
    times.sort();
    [times.len() / 2, times.len() * 99 / 100, times.len().saturating_sub(1)]
        .map(|rank| times.get(rank).copied().unwrap_or_default())
}

/// A client with ten thousand holds.
struct Stage {
    client: Client,
    holds: Vec<OwnedGuard>,
}

/// A hold that will be lost.
struct Probe {
    kind: OfName,
    guard: OwnedGuard,
    told: Receiver<Instant>,
}

impl Stage {
    fn start() -> (RedisServer, Self) {
        let (server, client) = alone();
        let take = |index: usize| client.get_lock(format!("other:{index}")).owned().lock().unwrap();
        let holds: Vec<_> = thread::scope(|scope| {
            let take = &take;
            let takers: Vec<_> = (0..4)
                .map(|taker| scope.spawn(move || (taker..HOLDS).step_by(4).map(take).collect::<Vec<_>>()))
                .collect();
            takers.into_iter().flat_map(joined).collect()
        });
        eventually(SOON, "all are watched", || server.tracked_keys() >= HOLDS);
        (server, Self { client, holds })
    }

    /// This number of holds of each kind, half of them leased, returned when all holds are watched.
    fn probes(&self, server: &RedisServer, of_each: usize) -> Vec<Probe> {
        let before = server.tracked_keys();
        let probes: Vec<_> = (0..of_each * WATCHED.len())
            .map(|number| {
                let (_, kind) = WATCHED[number % WATCHED.len()];
                let lock = kind(&self.client, &fresh("probe"));
                let lock = if (number / WATCHED.len()).is_multiple_of(2) {
                    lock
                } else {
                    lock.with_lease(Duration::from_secs(600))
                };
                let (tell, told) = pipe();
                let guard = lock.owned().lock().unwrap();
                guard.on_lost(move |_| tell.send(Instant::now()).unwrap_or_default());
                Probe { kind, guard, told }
            })
            .collect();
        eventually(SOON, "all are watched", || server.tracked_keys() >= before + probes.len());
        // The last look has ended.
        thread::sleep(ms(20));
        probes
    }
}

impl Probe {
    #[track_caller]
    fn told_after(&self, way: &str, since: Instant) -> Duration {
        let told = self.told.recv_timeout(SOON);
        let at = told.unwrap_or_else(|_| panic!("{way}: not told within {SOON:?}: {:?}", self.guard));
        at.saturating_duration_since(since)
    }
}
