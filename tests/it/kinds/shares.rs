//! Two processes at one hot lock: neither is passed over, however many threads the other process has.

use lockson::RedLock;
use lockson_harness::{Peer, Ticket};

use crate::support::encode;
use crate::support::prelude::*;

/// The shares of two processes in one lock: grants, and the longest wait of any thread in milliseconds.
struct Fight {
    grants: [i64; 2],
    longest_wait_ms: i64,
}

/// Each thread takes the lock, holds the lock for 10 ms, releases and asks again.
fn fight(kind: &str, threads: [usize; 2]) -> Fight {
    let server = RedisServer::start();
    let mut peers = [0, 1].map(|_| open_peer(&format!("address={}", encode(&server.url()))));
    let cycle = format!("cycle kind={kind} names=hot duration_ms=3000 hold_us=10000");
    let start = |(peer, threads): (&mut Peer, usize)| -> Vec<Ticket> {
        (0..threads).map(|thread| peer.send(&format!("{cycle} thread={thread}"))).collect()
    };
    let running: Vec<_> = peers.iter_mut().zip(threads).map(start).collect();
    let mut fight = Fight { grants: [0; 2], longest_wait_ms: 0 };
    for ((peer, loops), grants) in peers.iter_mut().zip(running).zip(&mut fight.grants) {
        for id in loops {
            let told = peer.answer(id, SOON).expect_ok();
            assert_eq!((told.number("errors"), told.number("lost")), (0, 0), "{told:?}");
            *grants += told.number("grants");
            fight.longest_wait_ms = fight.longest_wait_ms.max(told.number("longest_wait_ns") / 1_000_000);
        }
    }
    fight
}

#[test]
fn each_process_gets_its_part_of_a_hot_lock() {
    for (kind, threads) in [("plain", [4, 1]), ("plain", [1, 4]), ("write", [1, 4]), ("non_reentrant", [4, 4])] {
        let Fight { grants, longest_wait_ms } = fight(kind, threads);
        let what = format!("{kind}, {threads:?} threads: {grants:?} grants, longest wait {longest_wait_ms} ms");
        let (all, all_threads) = (grants.iter().sum::<i64>(), threads.iter().sum::<usize>() as i64);
        for (grants, threads) in grants.into_iter().zip(threads) {
            assert!(
                grants * all_threads * 2 >= all * threads as i64,
                "one process had less than half of its part: {what}"
            );
        }
        assert!(ms(longest_wait_ms.try_into().expect("no time is negative")) <= SCHEDULING, "{what}");
    }
}

#[test]
fn threads_that_gave_up_take_no_part_of_another_process() {
    let server = RedisServer::start();
    let clients = [0, 1].map(|_| Client::connect(&server.url()).unwrap());
    let [ours, theirs] = clients.each_ref().map(|client| client.get_lock("hot"));
    let mut stranger = server.connection();
    let mut messages = stranger.as_pubsub();
    messages.subscribe(channel("hot")).unwrap();
    messages.set_read_timeout(Some(ms(100))).unwrap();
    drop(ours.lock().unwrap());
    let guard = theirs.lock().unwrap();
    thread::scope(|scope| {
        (0..400).for_each(|_| drop(scope.spawn(|| assert!(ours.try_lock_for(ms(500)).unwrap().is_none()))));
    });
    thread::sleep(ms(2_500)); // longer than a thread that waits says nothing
    guard.unlock().unwrap();
    let end = Instant::now() + ms(3_000);
    let (mut own, mut foreign) = (0, 0);
    thread::scope(|scope| {
        let ours = scope.spawn(|| {
            while Instant::now() < end {
                let _guard = ours.lock().unwrap();
                thread::sleep(ms(10));
                own += 1;
            }
        });
        // As Redisson: a message wakes a thread, which asks some milliseconds later.
        while Instant::now() < end {
            let _ = messages.get_message();
            thread::sleep(ms(3));
            if let Some(_guard) = theirs.try_lock().unwrap() {
                thread::sleep(ms(10));
                foreign += 1;
            }
        }
        joined(ours);
    });
    assert!(foreign * 3 >= own, "{own} and {foreign}");
}

/// Hands over a free lock whose next turn belongs to another client, which listens and never asks.
fn in_the_turn_of_another<T>(client: &Client, server: &RedisServer, use_lock: impl FnOnce(&Lock) -> T) -> T {
    let lock = client.get_lock(fresh("turn"));
    let mut stranger = server.connection();
    let mut messages = stranger.as_pubsub();
    messages.subscribe(channel(lock.name())).unwrap();
    // The first release finds the other client, the second release ends the turn.
    for _ in 0..2 {
        let guard = lock.lock().unwrap();
        thread::sleep(ms(5)); // longer than the shortest turn
        guard.unlock().unwrap();
    }
    use_lock(&lock)
}

#[test]
fn a_wait_stands_back_and_a_try_does_not() {
    let (client, server) = (client(), RedisServer::shared());
    let waits = |take: fn(&Lock)| Waits::of(|| in_the_turn_of_another(&client, server, |lock| timed(|| take(lock)).0));
    let of_wait = waits(|lock| drop(lock.lock().unwrap())).usual;
    let of_try = waits(|lock| drop(lock.try_lock().unwrap().expect("the lock is free"))).shortest;
    assert!(of_wait >= ms(3) && of_try < ms(3), "{of_wait:?}, {of_try:?}");
}

/// What a thread takes, holds for a while and gives back; returns the wait.
type Section = Box<dyn Fn(Duration) -> Duration>;

fn section_of<T: 'static>(take: impl Fn() -> T + 'static, give_back: fn(T)) -> Section {
    Box::new(move |hold| {
        let (waited, taken) = timed(&take);
        thread::sleep(hold);
        give_back(taken);
        waited
    })
}

fn of_lock(lock: Lock) -> Section {
    section_of(move || lock.lock().unwrap(), |guard| guard.unlock().unwrap())
}

/// A section of one kind with a new name, and its channels.
fn section(client: &Client, kind: &str, permits: u32) -> (Section, Vec<String>) {
    let name = fresh("turn");
    let parts = [1, 2, 3].map(|number| format!("{name}:{number}"));
    let channels = vec![channel(&name)];
    match kind {
        "group" => (of_lock(client.get_group_lock(&name, ["one", "two"])), channels),
        "multi" => {
            let locks = parts.each_ref().map(|name| client.get_lock(name));
            (of_lock(Lock::multi(locks)), parts.iter().map(|name| channel(name)).collect())
        }
        "red" => {
            let lock =
                RedLock::new([client.get_lock(&name)]).with_rejoin_after(Duration::ZERO).with_node_timeout(ms(1_000));
            (of_lock(lock.into()), channels)
        }
        "semaphore" => {
            let semaphore = client.get_semaphore(&name);
            semaphore.set_permits_once(permits).unwrap();
            let section = section_of(move || semaphore.acquire(1).unwrap(), |permit| permit.release().unwrap());
            (section, vec![prefixed("redisson_sc", &name)])
        }
        _ => {
            let semaphore = client.get_permit_expirable_semaphore(&name);
            semaphore.set_permits_once(permits).unwrap();
            let section = section_of(move || semaphore.acquire(1).unwrap(), |permit| permit.release().unwrap());
            (section, vec![prefixed("redisson_sc", &name)])
        }
    }
}

/// Several waits of one sort: a busy machine may let the turn pass before a wait begins, and makes others longer.
struct Waits {
    shortest: Duration,
    usual: Duration,
}

impl Waits {
    fn of(wait: impl FnMut() -> Duration) -> Waits {
        let mut waits: Vec<Duration> = std::iter::repeat_with(wait).take(15).collect();
        waits.sort();
        Waits { shortest: waits[0], usual: waits[waits.len() / 2] }
    }

    /// For what is free, while another client listens and has its turn.
    fn in_the_turn_of_another(client: &Client, kind: &str, permits: u32) -> Waits {
        Waits::of(|| {
            let (section, channels) = section(client, kind, permits);
            let mut stranger = RedisServer::shared().connection();
            let mut messages = stranger.as_pubsub();
            channels.iter().for_each(|channel| messages.subscribe(channel).unwrap());
            section(ms(5)); // longer than the shortest turn
            section(ms(5));
            section(Duration::ZERO)
        })
    }
}

#[test]
fn every_kind_stands_back() {
    let client = client();
    for kind in ["group", "red", "semaphore", "permits"] {
        let waited = Waits::in_the_turn_of_another(&client, kind, 1).usual;
        assert!(waited >= ms(3), "{kind}: {waited:?}");
    }
}

#[test]
fn several_locks_stand_back_once() {
    let Waits { shortest, usual } = Waits::in_the_turn_of_another(&client(), "multi", 1);
    assert!(usual >= ms(3) && shortest < ms(12), "{shortest:?}, {usual:?}, where each of three locks asks for 4 ms");
}

#[test]
fn a_semaphore_with_free_permits_never_stands_back() {
    let waited = Waits::in_the_turn_of_another(&client(), "semaphore", 3).shortest;
    assert!(waited < ms(3), "{waited:?}");
}

#[test]
fn a_question_while_standing_back_keeps_the_bound() {
    let rig = Rig::start();
    let (wait, timeout) = (ms(300), Duration::from_secs(2));
    let client = rig.builder().command_timeout(timeout).connect().unwrap();
    let has_asked = || {
        in_the_turn_of_another(&client, &rig.server, |lock| {
            let question = rig.proxy.rule(When::command("HRANDFIELD"), Then::SwallowReply);
            thread::scope(|scope| {
                let waiter = scope.spawn(|| timed(|| lock.try_lock_for(wait).map(drop)));
                eventually(SOON, "the waiter asks", || question.hits() > 0 || waiter.is_finished());
                let has_asked = question.hits() > 0;
                if has_asked {
                    rig.proxy.mute(Scope::All, Direction::Both);
                    let (took, answer) = joined(waiter);
                    answer.unwrap_err();
                    assert!(took < wait + timeout + SCHEDULING, "{took:?}");
                }
                question.remove();
                has_asked
            })
        })
    };
    // On a busy machine the turn of the other client may be over before.
    assert!((0..50).any(|_| has_asked()), "no waiter asked who holds the lock");
}
