//! Messages on a cluster: plain and sharded pub/sub, slots that move and masters that die while threads wait.

use crate::campaign::Campaign;
use crate::support::kinds::{fair, fenced, non_reentrant, non_reentrant_fair, plain, read, write};
use crate::support::prelude::*;

/// The end of a hold, or of whatever keeps a waiter waiting.
type End = Box<dyn FnOnce()>;

/// One thing that threads wait for, as this test sees it.
struct Kind {
    label: &'static str,
    /// Keeps waiters waiting until the result is called.
    hold: fn(&Client, &str) -> End,
    /// Waits until the holder is gone.
    wait: fn(&Client, &str),
}

macro_rules! lock_kind {
    ($label:literal, $held:expr, $wanted:expr) => {
        Kind {
            label: $label,
            hold: |client, name| held(&$held(client, name)),
            wait: |client, name| drop($wanted(client, name).try_lock_for(PATIENCE).unwrap().expect("the lock is free")),
        }
    };
}

const KINDS: &[Kind] = &[
    lock_kind!("plain", plain, plain),
    lock_kind!("fair", fair, fair),
    lock_kind!("fenced", fenced, fenced),
    lock_kind!("read behind write", write, read),
    lock_kind!("write behind read", read, write),
    lock_kind!("non-reentrant", non_reentrant, non_reentrant),
    lock_kind!("non-reentrant fair", non_reentrant_fair, non_reentrant_fair),
    lock_kind!("multi", multi, multi),
    lock_kind!("group", group, group),
    Kind {
        label: "semaphore",
        hold: |client, name| {
            let semaphore = client.get_semaphore(name);
            semaphore.set_permits_once(1).unwrap();
            let permit = semaphore.acquire(1).unwrap();
            Box::new(move || permit.release().unwrap())
        },
        wait: |client, name| {
            drop(client.get_semaphore(name).try_acquire_for(1, PATIENCE).unwrap().expect("one is free"))
        },
    },
    Kind {
        label: "permits",
        hold: |client, name| {
            let permits = client.get_permit_expirable_semaphore(name);
            permits.set_permits_once(1).unwrap();
            let permit = permits.acquire(1).unwrap();
            Box::new(move || permit.release().unwrap())
        },
        wait: |client, name| {
            let permits = client.get_permit_expirable_semaphore(name);
            drop(permits.try_acquire_for(1, PATIENCE).unwrap().expect("one is free"));
        },
    },
    Kind {
        label: "latch",
        hold: |client, name| {
            let latch = client.get_count_down_latch(name);
            assert!(latch.set_count_once(1).unwrap());
            Box::new(move || latch.count_down().unwrap())
        },
        wait: |client, name| assert!(client.get_count_down_latch(name).wait_for(PATIENCE).unwrap()),
    },
    Kind {
        label: "election",
        hold: |client, name| {
            let leadership = client.get_election(name).candidate("a").campaign().unwrap();
            Box::new(move || leadership.resign().unwrap())
        },
        wait: |client, name| {
            let election = client.get_election(name);
            drop(election.candidate("b").campaign_for(PATIENCE).unwrap().expect("nobody leads"));
        },
    },
    Kind {
        label: "observer of an election",
        hold: |client, name| {
            let leadership = client.get_election(name).candidate("a").campaign().unwrap();
            Box::new(move || leadership.resign().unwrap())
        },
        wait: |client, name| {
            let election = client.get_election(name);
            let leader = election.leader().unwrap();
            assert!(election.wait_change(leader.as_ref(), PATIENCE).unwrap().is_none(), "the leader resigns");
        },
    },
];

/// Locks of several masters.
fn multi(client: &Client, name: &str) -> Lock {
    Lock::multi(["a", "b", "c"].map(|part| client.get_lock(format!("{name}:{part}"))))
}

fn group(client: &Client, name: &str) -> Lock {
    client.get_group_lock(name, ["one", "two"])
}

/// Takes a lock until the result is called.
fn held(lock: &Lock) -> End {
    let guard = lock.try_lock().unwrap().expect("the name is fresh");
    Box::new(move || guard.unlock().unwrap())
}

fn builder(cluster: &RedisCluster) -> ClientBuilder {
    Client::builder(&cluster.url())
}

/// Whether a channel with this name has a listener of this kind of pub/sub on one of these masters.
fn is_listened_to(cluster: &RedisCluster, masters: &[usize], sharded: bool, name: &str) -> bool {
    let word = if sharded { "SHARDCHANNELS" } else { "CHANNELS" };
    let channels = |master: &usize| cluster.node(*master).query::<Vec<String>>(&["PUBSUB", word]);
    masters.iter().flat_map(channels).any(|channel| channel.contains(name))
}

/// The time from a release to the end of the wait that the release ends.
fn woken_after(cluster: &RedisCluster, [ours, theirs]: &[Client; 2], kind: &Kind, sharded: bool) -> Duration {
    let name = fresh("pub_sub");
    let end = (kind.hold)(ours, &name);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            (kind.wait)(theirs, &name);
            Instant::now()
        });
        let masters = cluster.masters();
        eventually(SOON, "the waiter listens", || is_listened_to(cluster, &masters, sharded, &name));
        let released = Instant::now();
        end();
        joined(waiter).saturating_duration_since(released)
    })
}

fn every_kind_is_woken(sharded: bool, open: impl Fn() -> Client) {
    let (cluster, clients) = (RedisCluster::shared(), [open(), open()]);
    for kind in KINDS {
        // Without messages, a waiter asks again after 500 ms on average.
        let took = median(5, |_| woken_after(cluster, &clients, kind, sharded));
        assert!(took < ms(150) + STANDSTILLS, "{}: {took:?}", kind.label);
    }
}

#[test]
fn every_kind_is_woken_by_sharded_messages() {
    // Sharded without a setting: the servers know sharded pub/sub.
    every_kind_is_woken(true, || builder(RedisCluster::shared()).connect().unwrap());
}

#[test]
fn every_kind_is_woken_by_plain_messages() {
    every_kind_is_woken(false, || builder(RedisCluster::shared()).sharded_pub_sub(false).connect().unwrap());
}

#[test]
fn a_resp3_client_is_woken_by_sharded_messages() {
    let cluster = RedisCluster::shared();
    let open = || Client::connect(&format!("{}?protocol=resp3", cluster.url())).unwrap();
    let (clients, kind) = ([open(), open()], &KINDS[0]);
    let took = median(5, |_| woken_after(cluster, &clients, kind, true));
    assert!(took < ms(150) + STANDSTILLS, "{took:?}");
}

/// The names of all kinds in one slot. The channel of a latch has braces in any case.
fn names_of_one_slot(tag: &str) -> Vec<String> {
    let name = |kind: &Kind| if kind.label == "latch" { tag.to_owned() } else { format!("{{{tag}}}:{}", kind.label) };
    KINDS.iter().map(name).collect()
}

/// Has a thread wait for each kind, with all names in one slot of the first master. `upheaval` moves the slot, and
/// answers with the master that has the slot then: by the end of two seconds all waiters listen there.
fn waiters_follow(cluster: &RedisCluster, sharded: bool, upheaval: impl Fn(u16) -> usize) {
    let open = || builder(cluster).sharded_pub_sub(sharded).connect().unwrap();
    let (ours, theirs) = (open(), open());
    let tag = (0..).map(|_| fresh("moved")).find(|tag| cluster.node_of(tag) == 0).expect("a third are there");
    let names = names_of_one_slot(&tag);
    let all_listen = |master| names.iter().all(|name| is_listened_to(cluster, &[master], sharded, name));
    thread::scope(|scope| {
        let ends: Vec<End> = KINDS.iter().zip(&names).map(|(kind, name)| (kind.hold)(&ours, name)).collect();
        let waiters: Vec<_> = KINDS
            .iter()
            .zip(&names)
            .map(|(kind, name)| {
                let theirs = &theirs;
                scope.spawn(move || {
                    (kind.wait)(theirs, name);
                    Instant::now()
                })
            })
            .collect();
        eventually(SOON, "all listen at the first master", || all_listen(0));
        let master = upheaval(slot_of(&tag));
        eventually(ms(2_000), "all listen at the new master", || all_listen(master));
        let mut delays: Vec<_> = ends
            .into_iter()
            .zip(waiters)
            .map(|(end, waiter)| {
                let released = Instant::now();
                end();
                joined(waiter).saturating_duration_since(released)
            })
            .collect();
        delays.sort();
        assert!(delays[delays.len() / 2] < ms(150), "{delays:?}");
    });
}

#[test]
fn waiters_follow_a_slot_that_moves() {
    let cluster = RedisCluster::start(2, 0);
    for sharded in [true, false] {
        waiters_follow(&cluster, sharded, |slot| {
            cluster.move_slot(slot, 1);
            1
        });
    }
}

#[test]
fn waiters_follow_to_the_replica_of_a_dead_master() {
    let cluster = RedisCluster::start(3, 1);
    waiters_follow(&cluster, true, |_| {
        cluster.wait_until_synced(0);
        cluster.fail_over(0)
    });
}

#[test]
#[ignore = "make topology"]
fn waiters_follow_slots_that_pause_on_their_way() {
    let cluster = RedisCluster::start(3, 0);
    let mut campaign = Campaign::start("waiters of each kind whose slot moves", 1_000, 8);
    while campaign.goes_on() {
        let mut random = campaign.random();
        let (to, pause) = (1 + random.below(2) as usize, ms(random.below(300)));
        waiters_follow(&cluster, random.below(4) > 0, |slot| {
            cluster.begin_move(slot, to);
            cluster.move_keys(slot, to, |key| key.len() % 2 == 0);
            thread::sleep(pause);
            cluster.finish_move(slot, to);
            to
        });
        campaign.passed(KINDS.len() as u64);
    }
    campaign.end("all listened at the new master within 2 s");
}

#[test]
fn a_lost_lock_is_told_at_once_on_every_master() {
    let cluster = RedisCluster::start(2, 0);
    // A renewal would reveal the loss after 50 s.
    let client = builder(&cluster).watchdog(ms(150_000), ms(50_000)).connect().unwrap();
    let name_at =
        |node| (0..).map(|_| fresh("told")).find(|name| cluster.node_of(name) == node).expect("half are there");
    let guards = [0, 1].map(|node| client.get_lock(name_at(node)).owned().lock().unwrap());
    let is_watched = |node| cluster.node(node).tracked_keys() == 1;
    eventually(SOON, "each master tells of its lock", || is_watched(0) && is_watched(1));
    cluster.node(0).run(&["DEL", guards[0].name()]);
    assert!(builder(&cluster).connect().unwrap().get_lock(guards[1].name()).force_unlock().unwrap());
    for guard in guards {
        assert_eq!(guard.wait_lost(ms(5_000)), Some(Loss::Gone));
    }
}

/// The longest wait in these tests.
const PATIENCE: Duration = Duration::from_secs(30);
