//! Nothing grows: threads, descriptors, connections, channels, keys, memory.

use std::process;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Instant;

use lockson::Client;
use lockson_harness::{RedisServer, descriptors_of, eventually, resident_bytes, threads_of};

use super::campaign::Campaign;
use crate::support::{Random, SOON, TICK, TTL, joined, ms};

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
    let before = Usage::at_rest(&server, None);
    while campaign.goes_on() {
        reconnects += busy_round(&server, &client, &campaign);
        campaign.passed(PAIRS_OF_A_ROUND);
    }
    has_a_renewal(&client);
    let after = Usage::at_rest(&server, Some(&before));
    campaign.end(format!("{reconnects} reconnects; {}", after.compared(&before)));
}

#[test]
#[ignore = "make soak"]
fn leak_of_ten_thousand_clients() {
    let mut campaign = Campaign::start("clients opened and closed", 10_000, 7);
    let server = RedisServer::start();
    (0..5).for_each(|_| clients_come_and_go(&server));
    let before = Usage::at_rest(&server, None);
    while campaign.goes_on() {
        clients_come_and_go(&server);
        campaign.passed(CLIENTS_OF_A_ROUND);
    }
    let after = Usage::at_rest(&server, Some(&before));
    campaign.end(after.compared(&before));
}

/// Takes and gives back all over, while every connection is killed ten times; answers how often one was.
fn busy_round(server: &RedisServer, client: &Client, campaign: &Campaign) -> u64 {
    let done = AtomicU64::new(0);
    let mut seeds = campaign.random();
    thread::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|_| {
                let (mut random, done) = (Random(seeds.below(u64::MAX) | 1), &done);
                scope.spawn(move || {
                    for _ in 0..PAIRS_OF_A_ROUND / WORKERS {
                        // Some meet at one name, so that there is listening, too.
                        let name = if random.below(100) == 0 { NAMES } else { random.below(NAMES) };
                        client.lock(&format!("name:{name}")).lock().unwrap().unlock().unwrap();
                        done.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let mut killed = 0;
        for kill in 1..=KILLS_OF_A_ROUND {
            let at = PAIRS_OF_A_ROUND * kill / (KILLS_OF_A_ROUND + 1);
            eventually(SOON * 3, "they get on", || done.load(Ordering::Relaxed) >= at);
            killed += server.query::<u64>(&["CLIENT", "KILL", "TYPE", "normal"]).min(1);
            server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
        }
        workers.into_iter().for_each(joined);
        killed
    })
}

/// The watchdog's connection is opened by the first renewal, and found dead by the next one.
fn has_a_renewal(client: &Client) {
    let guard = client.lock("kept").lock().unwrap();
    assert_eq!(guard.wait_lost(TTL * 2), None);
    guard.unlock().unwrap();
}

fn clients_come_and_go(server: &RedisServer) {
    for number in 0..CLIENTS_OF_A_ROUND {
        let client = Client::connect(&server.url()).unwrap();
        let lock = client.lock("short");
        let guard = lock.lock().unwrap();
        if number % 10 == 0 {
            // A wait in vain, so that there is a listening connection.
            assert!(lock.owned().try_lock_for(ms(5)).unwrap().is_none());
        }
        match number % 3 {
            0 => guard.unlock().unwrap(),
            1 => client.close(), // gives it back
            _ => drop(guard),
        }
    }
}

/// What this process and its server use.
#[derive(Debug, PartialEq, Eq)]
struct Counts {
    threads: Option<usize>,
    descriptors: Option<usize>,
    connections: usize,
    channels: usize,
    keys: usize,
}

#[derive(Debug)]
struct Usage {
    counts: Counts,
    resident: Option<u64>,
}

impl Usage {
    /// The usage when it is what it was `before`; the first time, when it stays the same for as long as
    /// the connections that watch and listen stay after the last hold, and some.
    fn at_rest(server: &RedisServer, before: Option<&Usage>) -> Self {
        let started = Instant::now();
        let (mut counts, mut since) = (Counts::now(server), started);
        while match before {
            Some(before) => counts != before.counts,
            None => since.elapsed() < ms(6_000),
        } {
            assert!(started.elapsed() < SOON * 3, "this stays: {counts:?}, before: {before:?}");
            thread::sleep(ms(20));
            let now = Counts::now(server);
            if now != counts {
                (counts, since) = (now, Instant::now());
            }
        }
        Usage { counts, resident: resident_bytes(process::id()) }
    }

    fn compared(&self, before: &Usage) -> String {
        assert_eq!(self.counts, before.counts);
        let grown = self.resident.zip(before.resident).map(|(after, before)| after as i64 - before as i64);
        assert!(grown.is_none_or(|grown| grown <= MOST_GROWTH), "{grown:?} bytes more");
        format!("all as before ({:?}), resident memory {grown:?} bytes more", self.counts)
    }
}

impl Counts {
    fn now(server: &RedisServer) -> Self {
        Self {
            threads: threads_of(process::id()),
            descriptors: descriptors_of(process::id()),
            connections: server.clients_named("lockson"),
            channels: server.channels().len(),
            keys: server.keys().len(),
        }
    }
}

const NAMES: u64 = 100_000;
const WORKERS: u64 = 4;
const PAIRS_OF_A_ROUND: u64 = 10_000;
const KILLS_OF_A_ROUND: u64 = 10;
const CLIENTS_OF_A_ROUND: u64 = 100;
const MOST_GROWTH: i64 = 1 << 20;
