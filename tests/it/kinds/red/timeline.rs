//! Holds never overlap while servers are killed, stopped and continued in a random order.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use lockson::{Client, Lock, RedLock};
use lockson_harness::RedisServer;

use crate::support::{Random, joined, ms};

/// The longest lease in use.
const LONGEST: Duration = Duration::from_secs(2);
const CALLERS: u64 = 3;

/// A time in which a caller believed in its hold: from the return of the take to the start of the last call of
/// `is_held` that was true.
#[derive(Clone, Copy)]
struct Inside {
    from: Instant,
    to: Instant,
    caller: u64,
}

/// Takes a red lock on five servers under faults for `time`. Returns the number of holds, of which no two overlapped.
pub(crate) fn holds_under_faults(seed: u64, time: Duration) -> u64 {
    let servers: Vec<RedisServer> = (0..5).map(|_| RedisServer::start()).collect();
    // A new server has no vote.
    thread::sleep(LONGEST + Duration::from_secs(1));
    let begun = Instant::now();
    let (over, end) = (AtomicBool::new(false), begun + time);
    let mut all: Vec<Inside> = thread::scope(|scope| {
        let callers: Vec<_> = (0..CALLERS)
            .map(|caller| {
                let (over, servers) = (&over, &servers);
                scope.spawn(move || {
                    let random = Random(seed.wrapping_mul(31).wrapping_add(caller + 1) | 1);
                    call(&lock_at(servers), caller, random, over)
                })
            })
            .collect();
        break_things(&servers, Random(seed | 1), end);
        over.store(true, Ordering::Release);
        callers.into_iter().flat_map(joined).collect()
    });
    all.sort_by_key(|inside| inside.from);
    let mut found = vec![];
    for (number, one) in all.iter().enumerate() {
        let others = all[number + 1..].iter().take_while(|other| other.from < one.to);
        let text = |inside: &Inside| {
            format!("caller {} from {:?} to {:?}", inside.caller, inside.from - begun, inside.to - begun)
        };
        found.extend(others.map(|other| format!("{} and {}", text(one), text(other))));
    }
    assert!(found.is_empty(), "seed {seed}: {found:#?}");
    all.len() as u64
}

fn lock_at(servers: &[RedisServer]) -> RedLock {
    let client = |server: &RedisServer| {
        let builder = Client::builder(&server.url()).watchdog(ms(1_500), ms(300));
        builder.command_timeout(ms(500)).drop_timeout(ms(300)).connect_lazily().unwrap()
    };
    let locks = servers.iter().map(|server| client(server).get_lock("timeline"));
    RedLock::new(locks).with_node_timeout(ms(100)).with_rejoin_after(LONGEST)
}

fn call(lock: &Lock, caller: u64, mut random: Random, over: &AtomicBool) -> Vec<Inside> {
    let mut seen = vec![];
    while !over.load(Ordering::Acquire) {
        let lock = match random.below(3) {
            0 => lock.clone(), // renewed
            _ => lock.with_lease(ms(1_000) + ms(random.below(1_000))),
        };
        let Ok(Some(guard)) = lock.try_lock_for(ms(random.below(1_500))) else { continue };
        let from = Instant::now();
        let mut inside = Inside { from, to: from, caller };
        let until = from + ms(random.below(2_500));
        while Instant::now() < until && !over.load(Ordering::Acquire) {
            let asked = Instant::now();
            if !guard.is_held() {
                break;
            }
            inside.to = asked;
            thread::sleep(ms(2));
        }
        seen.push(inside);
        match random.below(5) {
            0 | 1 => drop(guard.unlock()),
            2 | 3 => drop(guard),
            _ => guard.keep_until_expiry(),
        }
    }
    seen
}

/// Kills, stops and continues servers, of which two are disturbed most of the time.
fn break_things(servers: &[RedisServer], mut random: Random, end: Instant) {
    let mut stopped = [false; 5];
    while Instant::now() < end {
        if random.below(8) == 0 {
            // A majority of some hold forgets it.
            for (server, _) in servers.iter().zip(stopped).filter(|(_, stopped)| !stopped).take(2) {
                server.restart();
            }
        }
        let node = usize::try_from(random.below(5)).unwrap();
        let server = &servers[node];
        if stopped[node] {
            server.resume();
            stopped[node] = false;
        } else if stopped.iter().filter(|stopped| **stopped).count() < 2 && random.below(3) > 0 {
            server.pause();
            stopped[node] = true;
        } else if random.below(4) == 0 {
            server.restart();
        }
        thread::sleep(ms(100 + random.below(700)));
    }
    for (server, stopped) in servers.iter().zip(stopped) {
        if stopped {
            server.resume();
        }
    }
}

#[test]
fn faults_of_servers_make_no_two_holders() {
    let holds: u64 = thread::scope(|scope| {
        let runs = [11, 22].map(|seed| scope.spawn(move || holds_under_faults(seed, Duration::from_secs(10))));
        runs.into_iter().map(joined).sum()
    });
    println!("{holds} holds");
    assert!(holds >= 4, "{holds} holds");
}
