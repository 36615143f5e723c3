//! Nothing grows: threads, descriptors, connections, channels, keys, memory.

use std::process;
use std::sync::atomic::AtomicU64;

use lockson_harness::{descriptors_of, threads_of};

use crate::HEAP;
use crate::campaign::Campaign;
use crate::support::prelude::*;

#[test]
#[ignore = "make soak"]
fn leak_of_a_million_locks_and_a_thousand_reconnects() {
    let mut campaign = Campaign::start("a million acquires of 100,000 names, 1,000 reconnects", 1_000_000, 30);
    let server = RedisServer::start();
    let client = Client::builder(&server.url()).idle_timeout(ms(200)).watchdog(TTL, TICK).connect().unwrap();
    let mut reconnects = 0;
    for _ in 0..10 {
        busy_round(&server, &client, &campaign); // warm-up
    }
    has_a_renewal(&client);
    let before = Counts::at_rest(&server, None);
    let memory = Memory::now();
    while campaign.goes_on() {
        reconnects += busy_round(&server, &client, &campaign);
        campaign.passed(PAIRS_OF_A_ROUND);
    }
    has_a_renewal(&client);
    let after = Counts::at_rest(&server, Some(&before));
    campaign.end(format!("{reconnects} reconnects; {}, {}", after.same_as(&before), memory.is_back()));
}

#[test]
#[ignore = "make soak"]
fn leak_of_ten_thousand_clients() {
    let mut campaign = Campaign::start("clients opened and closed", 10_000, 7);
    let server = RedisServer::start();
    (0..5).for_each(|_| clients_come_and_go(&server));
    let before = Counts::at_rest(&server, None);
    let memory = Memory::now();
    while campaign.goes_on() {
        clients_come_and_go(&server);
        campaign.passed(CLIENTS_OF_A_ROUND);
    }
    let after = Counts::at_rest(&server, Some(&before));
    campaign.end(format!("{}, {}", after.same_as(&before), memory.is_back()));
}

/// Takes and releases locks of all kinds, while every connection is killed ten times; returns the number of kills.
fn busy_round(server: &RedisServer, client: &Client, campaign: &Campaign) -> u64 {
    let done = AtomicU64::new(0);
    let mut seeds = campaign.random();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let (mut random, done) = (Random(seeds.below(u64::MAX) | 1), &done);
                scope.spawn(move || {
                    for _ in 0..PAIRS_OF_A_ROUND / WORKERS {
                        // Some workers meet at one name, so that waiters listen too.
                        let name = if random.below(100) == 0 { NAMES } else { random.below(NAMES) };
                        client.get_lock(format!("name:{name}")).lock().unwrap().unlock().unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut killed = 0;
        for kill in 1..=KILLS_OF_A_ROUND {
            let at = PAIRS_OF_A_ROUND * kill / (KILLS_OF_A_ROUND + 1);
            eventually(SOON * 3, "all workers make progress", || done.load(Ordering::Relaxed) >= at);
            killed += server.query::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]).min(1);
            server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        }
        workers.into_iter().for_each(joined);
        killed
    })
}

/// The first renewal opens the watchdog's connection, and the next renewal finds a dead connection.
fn has_a_renewal(client: &Client) {
    let guard = client.get_lock("kept").lock().unwrap();
    assert_eq!(guard.wait_lost(TTL * 2), None);
    guard.unlock().unwrap();
}

fn clients_come_and_go(server: &RedisServer) {
    for number in 0..CLIENTS_OF_A_ROUND {
        let client = Client::connect(&server.url()).unwrap();
        let lock = client.get_lock("short");
        let guard = lock.lock().unwrap();
        if number % 10 == 0 {
            // A wait in vain opens the listening connection.
            assert!(lock.owned().try_lock_for(ms(5)).unwrap().is_none());
        }
        match number % 3 {
            0 => guard.unlock().unwrap(),
            1 => client.close(), // releases the lock
            _ => drop(guard),
        }
    }
}

/// The resources of this process and the server.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    threads: Option<usize>,
    descriptors: Option<usize>,
    connections: usize,
    channels: usize,
    keys: usize,
}

impl Counts {
    /// Waits until the counts equal `before`; the first time, until the counts stay the same for longer than the
    /// watching and listening connections outlive the last hold.
    fn at_rest(server: &RedisServer, before: Option<&Self>) -> Self {
        let started = Instant::now();
        let (mut counts, mut since) = (Self::now(server), started);
        while match before {
            Some(before) => counts != *before,
            None => since.elapsed() < ms(6_000),
        } {
            assert!(started.elapsed() < SOON * 3, "lasting growth: {counts:?}, before: {before:?}");
            thread::sleep(ms(20));
            let now = Self::now(server);
            if now != counts {
                (counts, since) = (now, Instant::now());
            }
        }
        counts
    }

    fn now(server: &RedisServer) -> Self {
        Self {
            threads: threads_of(process::id()),
            descriptors: descriptors_of(process::id()),
            connections: server.clients_named("lockson"),
            channels: server.channels().len(),
            keys: server.keys().len(),
        }
    }

    fn same_as(&self, before: &Self) -> String {
        assert_eq!(self, before);
        format!("all as before ({self:?})")
    }
}

/// The bytes that this process has allocated and not freed.
///
/// Resident memory is no measure: with the same bytes in use,
/// the pages that the allocator keeps differ by more than a megabyte, also in medians of many rounds.
struct Memory(usize);

impl Memory {
    fn now() -> Self {
        Self(HEAP.current_usage())
    }

    /// Waits until what is under way in the background is done.
    fn is_back(&self) -> String {
        let grown = || Self::now().0 as i64 - self.0 as i64;
        let started = Instant::now();
        while grown() > MOST_GROWTH {
            assert!(started.elapsed() < SOON, "{} bytes more in use than the {} before", grown(), self.0);
            thread::sleep(ms(20));
        }
        format!("{} bytes more in use than before", grown())
    }
}

const NAMES: u64 = 100_000;
const WORKERS: u64 = 4;
const PAIRS_OF_A_ROUND: u64 = 10_000;
const KILLS_OF_A_ROUND: u64 = 10;
const CLIENTS_OF_A_ROUND: u64 = 100;
/// Tables keep the room of their fullest moment.
const MOST_GROWTH: i64 = 1 << 16;
