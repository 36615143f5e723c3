//! Masters that die: their replicas have the locks, waiters go on, and the holds at other masters are renewed.

use std::sync::mpsc;

use lockson_harness::Witness;

use super::kinds::brisk;
use crate::campaign::Campaign;
use crate::support::prelude::*;

#[test]
#[ignore = "make topology"]
fn thirty_masters_die_one_after_another() {
    let mut campaign = Campaign::start("fail-overs of a cluster", 30, 30);
    let scene = Scene::new();
    let mut waits = vec![];
    while campaign.goes_on() {
        let master = scene.cluster.masters()[waits.len() % 3];
        waits.extend(scene.fail_over(master));
        scene.cluster.start_again(master);
        scene.cluster.masters().into_iter().for_each(|master| scene.cluster.wait_until_synced(master));
        campaign.passed(1);
    }
    waits.sort();
    let at = |part: usize| waits[(waits.len() - 1) * part / 100];
    campaign.end(format!("granted {:.1?} to {:.1?} later, half within {:.1?}", at(0), at(100), at(50)));
    assert!(at(100) < ms(2_000), "a waiter slept for {:?}", at(100));
}

#[test]
fn a_replica_has_the_locks_of_its_dead_master() {
    let scene = Scene::new();
    let waits = scene.fail_over(scene.cluster.masters()[0]);
    assert!(waits.iter().all(|wait| *wait < ms(2_000)), "{waits:?}");
    eventually(SOON, "who does not listen there tells it", || scene.events.count_of("heard again") > 0);
}

#[test]
fn renewals_that_failed_go_on_at_the_new_master_and_say_so() {
    let (cluster, events) = (RedisCluster::start(3, 1), Events::default());
    let builder = Client::builder(&cluster.url()).watchdog(SOON, ms(200)).command_timeout(ms(500));
    let guard = builder.observer(events.clone()).connect().unwrap().get_lock("kept").lock().unwrap();
    let master = cluster.node_of("kept");
    cluster.wait_until_synced(master);
    cluster.node(master).pause();
    eventually(SOON, "renewals fail", || events.count_of("not renewed") > 0);
    cluster.take_over(cluster.replicas_of(master)[0]);
    eventually(SOON, "the end is told", || events.outages().len() == 1);
    assert!(guard.is_held());
    cluster.node(master).resume();
    guard.unlock().unwrap();
}

#[test]
#[ignore = "make topology"]
fn hung_masters_are_left_by_all_who_ask() {
    let mut campaign = Campaign::start("hung masters of a cluster, and who asks their successors", 100, 100);
    let cluster = RedisCluster::start(3, 1);
    let mut waits = vec![];
    while campaign.goes_on() {
        let master = cluster.masters()[waits.len() % 3];
        waits.extend(leave_hung(&cluster, master, 20));
        campaign.passed(20);
    }
    waits.sort();
    let at = |part: usize| waits[(waits.len() - 1) * part / 100];
    campaign.end(format!("the successor is asked {:.1?} to {:.1?} later, half within {:.1?}", at(0), at(100), at(50)));
    assert!(at(100) < LEFT_WITHIN + SCHEDULING, "{:?}", at(100));
}

#[test]
fn a_hung_master_is_left_by_all_who_ask() {
    let cluster = RedisCluster::start(3, 1);
    let waits = leave_hung(&cluster, cluster.masters()[0], 8);
    assert!(waits.iter().all(|wait| *wait < LEFT_WITHIN + SCHEDULING), "{waits:?}");
}

/// Stops a master whose locks are taken all the time by so many threads. Returns how long after the end of the
/// fail-over the successor has answered each.
fn leave_hung(cluster: &RedisCluster, master: usize, threads: usize) -> Vec<Duration> {
    let names = std::iter::repeat_with(|| fresh("hung")).filter(|name| cluster.node_of(name) == master);
    let names: Vec<String> = names.take(threads).collect();
    let client = Client::connect(&cluster.url()).unwrap();
    let taken: Vec<AtomicUsize> = names.iter().map(|_| AtomicUsize::new(0)).collect();
    let is_over = AtomicBool::new(false);
    let (client, is_over) = (&client, &is_over);
    thread::scope(|scope| {
        for (name, taken) in names.iter().zip(&taken) {
            scope.spawn(move || {
                // A release that the replica lacks brings its lock back, for as long as this.
                let lock = client.get_lock(name).with_lease(ms(500));
                while !is_over.load(Ordering::SeqCst) {
                    let guard = lock.try_lock_for(SOON * 6).unwrap().expect("nobody else wants it");
                    // A release whose time is over goes on in the background.
                    let _ = guard.unlock();
                    taken.fetch_add(1, Ordering::SeqCst);
                    thread::sleep(ms(5));
                }
            });
        }
        eventually(SOON, "all take", || taken.iter().all(|taken| taken.load(Ordering::SeqCst) > 0));
        cluster.wait_until_synced(master);
        cluster.node(master).pause();
        // All wait for the hung master by now.
        thread::sleep(ms(1_500));
        cluster.take_over(cluster.replicas_of(master)[0]);
        let (served, before) = (Instant::now(), taken.iter().map(|taken| taken.load(Ordering::SeqCst)));
        let before: Vec<usize> = before.collect();
        let mut waits = vec![None; names.len()];
        while waits.contains(&None) {
            for ((wait, taken), before) in waits.iter_mut().zip(&taken).zip(&before) {
                if wait.is_none() && taken.load(Ordering::SeqCst) > *before {
                    *wait = Some(served.elapsed());
                }
            }
            assert!(served.elapsed() < SOON * 3, "somebody never asks the successor: {waits:?}");
            thread::sleep(ms(5));
        }
        is_over.store(true, Ordering::SeqCst);
        cluster.node(master).resume();
        cluster.wait_until_well();
        waits.into_iter().flatten().collect()
    })
}

/// The bound that is promised.
const LEFT_WITHIN: Duration = Duration::from_secs(3);

/// A cluster of three masters with a replica each, and two clients.
struct Scene {
    cluster: RedisCluster,
    holder: Client,
    waiter: Client,
    witness: Witness,
    events: Events,
}

impl Scene {
    fn new() -> Self {
        let cluster = RedisCluster::start(3, 1);
        let events = Events::default();
        let client = || brisk(&cluster).watchdog(LEASE, LEASE / 5).observer(events.clone()).connect().unwrap();
        let (holder, waiter) = (client(), client());
        let witness = Witness::at(cluster.node(0).data_folder().join("witness"));
        Scene { holder, waiter, witness, cluster, events }
    }

    /// Kills a master whose locks are held and waited for. Returns the time from the release of each lock at its new
    /// master, which follows the end of the fail-over, until its waiter had it.
    fn fail_over(&self, master: usize) -> Vec<Duration> {
        let names: Vec<String> = self.names_at(master).take(LOCKS).collect();
        let elsewhere: Vec<Guard> = (0..LOCKS).map(|_| self.holder.get_lock(fresh("other")).lock().unwrap()).collect();
        let mut held: Vec<Guard> = names.iter().map(|name| self.holder.get_lock(name).lock().unwrap()).collect();
        let inside: Vec<_> = names.iter().map(|name| self.witness.enter(name)).collect();
        let (tell, granted) = mpsc::channel();
        let waits = thread::scope(|scope| {
            let waiters: Vec<_> = names
                .iter()
                .map(|name| {
                    let tell = tell.clone();
                    scope.spawn(move || {
                        let guard = self.waiter.get_lock(name).try_lock_for(SOON * 6).unwrap().expect("it is released");
                        tell.send((name.clone(), Instant::now())).unwrap();
                        drop(self.witness.enter(name));
                        guard.unlock().unwrap();
                    })
                })
                .collect();
            eventually(SOON, "all wait", || self.waiter.waiting().len() == LOCKS);
            self.cluster.wait_until_synced(master);
            self.cluster.fail_over(master);
            assert!(held.iter().all(|guard| guard.is_held()), "the replica had every lock");
            drop(inside);
            let mut waits = vec![];
            for (name, guard) in names.iter().zip(held.drain(..)) {
                let began = Instant::now();
                guard.unlock().unwrap();
                let (who, when) = granted.recv_timeout(SOON).expect("the waiter is woken");
                assert_eq!(who, *name);
                waits.push(when.duration_since(began));
            }
            waiters.into_iter().for_each(joined);
            waits
        });
        self.witness.assert_no_violation();
        assert!(elsewhere.iter().all(|guard| guard.is_held()), "a hold at another master was lost");
        waits
    }

    fn names_at(&self, master: usize) -> impl Iterator<Item = String> {
        std::iter::repeat_with(|| fresh("failover")).filter(move |name| self.cluster.node_of(name) == master)
    }
}

#[test]
#[ignore = "make topology"]
fn ten_thousand_locks_outlive_a_master_of_others() {
    let mut campaign = Campaign::start("ten thousand locks on three masters, one of which dies", 10_000, 10);
    let least = locks_outlive_a_master_of_others(10_000, LEASE);
    campaign.passed(10_000);
    campaign.end(format!("least time left {least:.1?} of {LEASE:?}"));
}

#[test]
fn locks_outlive_a_master_of_other_locks() {
    locks_outlive_a_master_of_others(600, ms(2_500));
}

/// Kills one of three masters without replicas. Returns the least time that a hold at another master had left.
fn locks_outlive_a_master_of_others(count: usize, lease: Duration) -> Duration {
    let cluster = RedisCluster::start_with(3, 0, |builder| builder.config("cluster-require-full-coverage no"));
    let client = brisk(&cluster).watchdog(lease, lease / 5).connect().unwrap();
    let ranges: Vec<usize> = (0..3).map(|part| part * 16_384 / 3).collect();
    let home = |name: &str| ranges.iter().rposition(|from| *from <= usize::from(slot_of(name))).unwrap();
    let names: Vec<String> = (0..count).map(|_| fresh("many")).collect();
    let guards: Vec<Guard> = names.iter().map(|name| client.get_lock(name).lock().unwrap()).collect();
    cluster.kill(2);
    let (others, of_the_dead): (Vec<_>, Vec<_>) = names.iter().zip(&guards).partition(|(name, _)| home(name) != 2);
    let mut least = lease;
    let started = Instant::now();
    while started.elapsed() < lease * 3 / 2 {
        least = others.iter().map(|(_, guard)| guard.remaining()).fold(least, Duration::min);
        thread::sleep(ms(50));
    }
    let lost = others.iter().filter(|(_, guard)| !guard.is_held()).count();
    assert_eq!(lost, 0, "of {}", others.len());
    assert!(of_the_dead.len() > count / 4 && of_the_dead.iter().all(|(_, guard)| guard.lost().is_some()));
    let (took, ()) = timed(|| drop(guards));
    assert!(took < SOON * 6, "giving back took {took:?}");
    least
}

const LOCKS: usize = 4;
/// Longer than a fail-over, which takes two to four seconds here.
const LEASE: Duration = Duration::from_secs(15);
