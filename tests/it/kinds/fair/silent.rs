//! Waiters that are silent for their patience are removed together, and a request costs the same in a long queue.

use super::java_client::{Java, heard};
use super::{PATIENCE, Queue, hasty_client, leave, now_ms};
use crate::faults::other_process::OtherProcess;
use crate::support::prelude::*;

const PATIENCE_MS: i64 = 2_000;
const PATIENCE_TEXT: &str = "2000";

/// A process with `threads` waiters, the first in the queue.
fn waiting_process(queue: Queue<'_>, threads: usize) -> OtherProcess {
    let mut process = OtherProcess::start(queue.server);
    for lane in 0..threads {
        process.send(lane, &format!("lock fair {}", queue.name));
        queue.await_length(lane + 1);
    }
    process
}

/// Waits until no waiter of a dead process counts as alive.
fn await_silence(queue: Queue<'_>, process: &OtherProcess) {
    const ALIVE: &str = "local t = redis.call('time')
        return redis.call('zrangebyscore', KEYS[1], t[1] * 1000 + math.floor(t[2] / 1000), '+inf')";
    eventually(SOON, "the process is silent for the patience", || {
        let alive: Vec<String> = queue.server.query(&["EVAL", ALIVE, "1", &queue.alive()]);
        !alive.iter().any(|owner| owner.starts_with(process.client_id()))
    });
}

/// Sends the request of a client with the shortest patience; returns whether the lock is granted.
pub(super) fn ask(queue: Queue<'_>, owner: &str) -> bool {
    let acquire = include_str!("../../../../lua/fair/acquire.lua");
    run::<Vec<i64>>(queue, acquire, &["30000", owner, PATIENCE_TEXT, "channel", "0", "PUBLISH"])[0] == 1
}

/// Gives a hold back as such a client does.
pub(super) fn release(queue: Queue<'_>, owner: &str) {
    let release = include_str!("../../../../lua/fair/release.lua");
    let answer: Vec<i64> = run(queue, release, &[owner, "0", "0", "channel", "0", "PUBLISH", PATIENCE_TEXT]);
    assert_eq!(answer[0], 1);
}

fn force_release(queue: Queue<'_>) {
    let release = include_str!("../../../../lua/fair/release.lua");
    let answer: Vec<i64> = run(queue, release, &["", "-1", "0", "channel", "0", "PUBLISH", PATIENCE_TEXT]);
    assert_eq!(answer[0], 1);
}

/// Leaves the queue as such a client does.
pub(super) fn give_up(queue: Queue<'_>, owner: &str) {
    let leave = include_str!("../../../../lua/fair/leave.lua");
    assert_eq!(run::<i64>(queue, leave, &[owner, PATIENCE_TEXT, "channel", "0", "PUBLISH"]), 1);
}

fn run<T: redis::FromRedisValue>(queue: Queue<'_>, script: &str, arguments: &[&str]) -> T {
    let [list, deadlines, alive] = queue.keys();
    queue.server.query(&[&["EVAL", script, "4", queue.name, &list, &deadlines, &alive], arguments].concat())
}

/// Adds dead waiters to the queue, who count as alive for so many ms.
const FILL: &str = "local t = redis.call('time')
    for i = 1, tonumber(ARGV[1]) do
      local owner = 'crowd:' .. i .. '.1'
      redis.call('rpush', KEYS[1], owner)
      redis.call('zadd', KEYS[2], t[1] * 1000 + ARGV[2], owner)
      redis.call('zadd', KEYS[3], t[1] * 1000 + ARGV[2], owner)
    end";

/// How many ms a waiter counts as alive without another request.
fn alive_for_ms(queue: Queue<'_>, owner: &str) -> i64 {
    queue.server.query::<i64>(&["ZSCORE", &queue.alive(), owner]) - now_ms(queue.server)
}

#[test]
fn dead_waiters_go_together_however_many_they_are() {
    let delay = |threads: usize, release_at_once: bool| {
        let server = RedisServer::start();
        let queue = Queue { server: &server, name: "job" };
        let guard = hasty_client(&server).get_fair_lock("job").lock().unwrap();
        let mut doomed = waiting_process(queue, threads);
        let waited = thread::scope(|scope| {
            let next = queue.waiter(scope, hasty_client(&server).get_fair_lock("job"), leave);
            doomed.kill();
            if !release_at_once {
                await_silence(queue, &doomed);
            }
            let released = Instant::now();
            guard.unlock().unwrap();
            joined(next).0.saturating_duration_since(released)
        });
        queue.assert_gone();
        waited
    };
    thread::scope(|scope| {
        for threads in [1, 2, 4, 8, 40] {
            let delay = &delay;
            scope.spawn(move || {
                let waited = delay(threads, true);
                assert!(waited <= PATIENCE + SCHEDULING * 2, "{threads} killed just now cost {waited:?}");
                let waited = delay(threads, false);
                assert!(waited <= SCHEDULING, "{threads} killed long ago cost {waited:?}");
            });
        }
    });
}

#[test]
fn dead_waiters_between_live_ones_cost_one_patience_in_all() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let guard = hasty_client(&server).get_fair_lock("job").lock().unwrap();
    let mut doomed = OtherProcess::start(&server);
    let order = Mutex::new(vec![]);
    thread::scope(|scope| {
        let mut last = None;
        for place in 0..5 {
            doomed.send(place, "lock fair job");
            queue.await_length(2 * place + 1);
            let order = &order;
            last = Some(queue.waiter(scope, hasty_client(&server).get_fair_lock("job"), move |guard| {
                order.lock().push(place);
                leave(guard);
            }));
        }
        doomed.kill();
        let released = Instant::now();
        guard.unlock().unwrap();
        let waited = joined(last.expect("five wait")).0 - released;
        assert!(waited <= PATIENCE + SCHEDULING * 2, "{waited:?}");
    });
    assert_eq!(order.into_inner(), [0, 1, 2, 3, 4]);
    queue.assert_gone();
}

#[test]
fn a_release_tells_javas_waiter_behind_the_dead() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let [mut before, java] = [1, 2].map(|thread| Java::new(&server, "job", thread));
    before.wait_ms = 1_000;
    let guard = hasty_client(&server).get_fair_lock("job").lock().unwrap();
    assert!(before.ask().is_some());
    let mut doomed = OtherProcess::start(&server);
    for lane in 0..3 {
        doomed.send(lane, "lock fair job");
        queue.await_length(lane + 2);
    }
    assert!(java.ask().is_some());
    let mut messages = java.listen();
    // Giving up takes one second of the 300 that Lockson's waiter had to give.
    before.give_up(before.wait_ms);
    doomed.kill();
    await_silence(queue, &doomed);
    assert!(queue.left_ms().values().all(|left| *left > 0), "no waiter is gone by the deadlines");
    guard.unlock().unwrap();
    assert!(heard(&mut messages), "the waiter is told");
    assert_eq!(queue.owners(), [&*java.owner]);
    assert_eq!(java.ask(), None);
    assert_eq!(java.unlock(), Some(1));
    queue.assert_gone();
}

#[test]
fn javas_waiter_behind_a_dead_one_is_in_within_our_patience() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let java = Java::new(&server, "job", 1);
    let guard = hasty_client(&server).get_fair_lock("job").lock().unwrap();
    let mut doomed = waiting_process(queue, 1);
    assert!(java.ask().is_some());
    doomed.kill();
    guard.unlock().unwrap();
    let (took, ()) = timed(|| eventually(2 * SOON, "the waiter is granted", || java.ask().is_none()));
    assert!(took <= PATIENCE + SCHEDULING, "{took:?}");
    assert_eq!(java.unlock(), Some(1));
    // No waiter of Lockson follows that would remove the last trace of the dead waiter.
    server.run(&["DEL", &queue.alive()]);
    queue.assert_gone();
}

#[test]
fn javas_waiter_has_our_patience_when_it_becomes_the_first() {
    for granted in [true, false] {
        let server = RedisServer::start();
        let queue = Queue { server: &server, name: "job" };
        let java = Java::new(&server, "job", 1);
        assert!(ask(queue, "holder:1.1") && !ask(queue, "first:1.1"));
        assert!(java.ask().is_some());
        // The Java waiter's deadline is over, but no request has judged the waiter, because another waiter is first.
        server.run(&["ZADD", &queue.deadlines(), &now_ms(&server).to_string(), &java.owner]);
        if granted {
            release(queue, "holder:1.1");
            assert!(ask(queue, "first:1.1"));
        } else {
            give_up(queue, "first:1.1");
        }
        let left = queue.left_ms()[&java.owner];
        assert!((1..=PATIENCE_MS).contains(&left), "{granted}: {left}");
        assert_eq!(queue.owners(), [&*java.owner]);
    }
}

#[test]
fn a_waiter_without_a_place_rejoins_while_others_wait() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    assert!(ask(queue, "holder:1.1") && !ask(queue, "first:1.1") && !ask(queue, "second:1.1"));
    server.run(&["LREM", &queue.list(), "0", "first:1.1"]);
    assert!(!ask(queue, "first:1.1"));
    assert_eq!(queue.owners(), ["second:1.1", "first:1.1"]);
}

#[test]
fn an_outage_beyond_the_patience_costs_no_waiter_its_place() {
    let silent_for = |server: &RedisServer, queue: Queue<'_>, owner: &str, silent_ms: i64| {
        server.run(&["ZADD", &queue.alive(), &(now_ms(server) + PATIENCE_MS - silent_ms).to_string(), owner]);
    };
    for everybody in [true, false] {
        let server = RedisServer::start();
        let queue = Queue { server: &server, name: "job" };
        assert!(ask(queue, "holder:1.1"));
        let owners = ["first:1.1", "second:1.1", "third:1.1"].map(str::to_owned);
        assert!(!owners.iter().any(|owner| ask(queue, owner)));
        for owner in &owners {
            silent_for(&server, queue, owner, 3 * PATIENCE_MS);
        }
        if !everybody {
            // The request of a living waiter shows that the server is not the cause of the silence. The living waiter
            // is not next.
            assert!(!ask(queue, "fourth:1.1"));
            assert_eq!(queue.owners()[..3], owners);
        }
        let mut messages = server.connection();
        let () = redis::cmd("SUBSCRIBE").arg("channel:first:1.1").query(&mut messages).unwrap();
        if everybody {
            release(queue, "holder:1.1");
            assert!(heard(&mut messages), "the first waiter is told, because the waiter may be alive");
            assert_eq!(queue.owners(), owners);
        }
        server.run(&["DEL", "job"]);
        assert_eq!(ask(queue, "third:1.1"), !everybody, "a waiter that alone was silent has lost its turn");
        if everybody {
            assert_eq!(queue.owners(), owners);
            // From here on the silence counts again.
            assert!(owners.iter().all(|owner| (0..=PATIENCE_MS).contains(&alive_for_ms(queue, owner))));
        } else {
            assert_eq!(queue.owners(), ["fourth:1.1"]);
        }
    }
}

#[test]
fn an_outage_just_short_of_the_patience_costs_no_place() {
    type Act = fn(Queue<'_>);
    let acts: [(&str, Act); 4] = [
        ("the lock expires", |queue| queue.server.run(&["DEL", "job"])),
        ("a release", |queue| release(queue, "holder:1.1")),
        ("a forced release", force_release),
        ("a waiter that leaves a free lock", |queue| {
            queue.server.run(&["DEL", "job"]);
            give_up(queue, "third:1.1");
        }),
    ];
    for (what, act) in acts {
        let server = RedisServer::start();
        let queue = Queue { server: &server, name: "job" };
        assert!(ask(queue, "holder:1.1"));
        // Each asked last at another moment of the half second before the outage.
        for (owner, silent_ms) in [("first:1.1", 2_200), ("second:1.1", 1_700), ("third:1.1", 1_900)] {
            assert!(!ask(queue, owner));
            server.run(&["ZADD", &queue.alive(), &(now_ms(&server) + PATIENCE_MS - silent_ms).to_string(), owner]);
        }
        act(queue);
        assert_eq!(queue.owners()[..2], ["first:1.1", "second:1.1"], "{what}");
        assert!(!ask(queue, "second:1.1"), "{what}");
        assert!(ask(queue, "first:1.1"), "{what}");
    }
}

#[test]
fn after_an_outage_no_first_request_costs_a_place() {
    type Act = fn(Queue<'_>, &Java);
    let acts: [(&str, usize, Act); 4] = [
        ("a release behind one of Java", 0, |queue, java| {
            queue.server.run(&["LPUSH", &queue.list(), &java.owner]);
            queue.server.run(&["ZADD", &queue.deadlines(), &(now_ms(queue.server) - 1).to_string(), &java.owner]);
            release(queue, "holder:1.1");
        }),
        ("a forced release", 0, |queue, _| force_release(queue)),
        ("a waiter that leaves a held lock before one of Java", 1, |queue, java| {
            assert!(java.ask().is_some());
            give_up(queue, "first:1.1");
            java.give_up(300_000);
        }),
        ("a waiter that leaves a free lock", 1, |queue, _| {
            queue.server.run(&["DEL", "job"]);
            give_up(queue, "first:1.1");
        }),
    ];
    for (what, left, act) in acts {
        let server = RedisServer::start();
        let (queue, java) = (Queue { server: &server, name: "job" }, Java::new(&server, "job", 1));
        assert!(ask(queue, "holder:1.1"));
        let owners = ["first:1.1", "second:1.1", "third:1.1"];
        for owner in owners {
            assert!(!ask(queue, owner));
            server.run(&["ZADD", &queue.alive(), &(now_ms(&server) - 2 * PATIENCE_MS).to_string(), owner]);
        }
        let mut messages = server.connection();
        let () = redis::cmd("SUBSCRIBE").arg(format!("channel:{}", owners[left])).query(&mut messages).unwrap();
        act(queue, &java);
        assert_eq!(queue.owners(), owners[left..], "{what}");
        let is_free = server.query::<i64>(&["EXISTS", "job"]) == 0;
        assert!(!is_free || heard(&mut messages), "{what}: the first waiter is told");
        server.run(&["DEL", "job"]);
        assert!(!ask(queue, "third:1.1"), "{what}");
        assert!(ask(queue, owners[left]), "{what}");
    }
}

#[test]
fn a_deadline_follows_how_many_of_java_are_in_front() {
    let (server, name) = (RedisServer::shared(), fresh("fair"));
    let queue = Queue { server, name: &name };
    let javas = [1, 2].map(|thread| Java::new(server, &name, thread));
    let guard = hasty_client(server).get_fair_lock(&name).lock().unwrap();
    assert!(javas.iter().all(|java| java.ask().is_some()));
    thread::scope(|scope| {
        let waiter = queue.waiter(scope, hasty_client(server).get_fair_lock(&name), leave);
        let owner = queue.owners().pop().unwrap();
        let follows = |what: &str, javas: i64| {
            let promised = 300_000 * javas;
            eventually(SOON, what, || (promised..=promised + 2_000).contains(&queue.left_ms()[&owner]));
        };
        follows("two are in front", 2);
        // As a script of Redisson does that purges a waiter without taking time from the waiters behind.
        server.run(&["LPOP", &queue.list()]);
        server.run(&["ZREM", &queue.deadlines(), &javas[0].owner]);
        follows("one waiter is in front", 1);
        server.run(&["ZADD", &queue.deadlines(), "XX", &(now_ms(server) + 10_000).to_string(), &owner]);
        follows("another waiter took more time than was given", 1);
        javas[1].give_up(300_000);
        follows("no waiter is in front", 0);
        guard.unlock().unwrap();
        joined(waiter);
    });
    queue.assert_gone();
}

#[test]
fn the_memory_of_purged_waiters_expires() {
    let (server, name) = (RedisServer::shared(), fresh("fair"));
    let queue = Queue { server, name: &name };
    let guard = hasty_client(server).get_fair_lock(&name).lock().unwrap();
    thread::scope(|scope| {
        let waiter = queue.waiter(scope, hasty_client(server).get_fair_lock(&name), leave);
        // The state after Redisson has removed a waiter: Redisson does not know this key.
        server.run(&["ZADD", &queue.alive(), &(now_ms(server) - 1).to_string(), "purged:1.1"]);
        let is_known = || server.query::<Option<String>>(&["ZSCORE", &queue.alive(), "purged:1.1"]).is_some();
        eventually(SOON, "the purged waiter is forgotten", || !is_known());
        guard.unlock().unwrap();
        joined(waiter);
    });
    queue.assert_gone();
}

#[test]
fn a_waiter_far_back_asks_every_other_second() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let [list, deadlines, alive] = queue.keys();
    let guard = Client::connect(&server.url()).unwrap().get_fair_lock("job").with_lease(3 * SOON).lock().unwrap();
    let questions = |span| {
        let asked = server.calls_of("evalsha");
        thread::sleep(span);
        server.calls_of("evalsha") - asked
    };
    server.run(&["EVAL", FILL, "3", &list, &deadlines, &alive, "150", "600000"]);
    thread::scope(|scope| {
        let far = scope.spawn(|| {
            Client::connect(&server.url()).unwrap().get_fair_lock("job").try_lock_for(3 * SOON).unwrap().map(leave)
        });
        queue.await_length(151);
        queue.await_listening(&queue.owners()[150]);
        // A second each would be five and more.
        let asked = questions(ms(6_000));
        assert!((1..=4).contains(&asked), "asked {asked} times");
        server.run(&["DEL", &list, &deadlines, &alive]);
        guard.unlock().unwrap();
        assert!(joined(far).is_some());
    });
    queue.assert_gone();
}

#[test]
fn a_question_and_a_grant_cost_the_same_in_a_long_queue() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let [list, deadlines, alive] = queue.keys();
    let asks = |what: &str, owner: &str| {
        server.reset_counters();
        let granted = ask(queue, owner);
        assert_eq!(granted, what.starts_with("a grant"), "{what}");
        let calls = server.calls();
        let all: u64 = calls.values().sum();
        // A look for a place is bounded.
        assert!(all <= 35 && !calls.contains_key("lrange"), "{what}: {calls:?}");
    };
    asks("a grant of a free lock", "holder:1.1");
    asks("a request that joins an empty queue", "first:1.1");
    server.run(&["EVAL", FILL, "3", &list, &deadlines, &alive, "1000", "600000"]);
    asks("a request that joins", "last:1.1");
    asks("a question of the first", "first:1.1");
    asks("a question of the last", "last:1.1");
    server.run(&["DEL", "job"]);
    asks("a grant before a thousand", "first:1.1");
    assert_eq!(queue.owners().len(), 1_001);
}

#[test]
fn dead_waiters_of_ours_are_not_taken_for_javas() {
    let server = RedisServer::start();
    let queue = Queue { server: &server, name: "job" };
    let [list, deadlines, alive] = queue.keys();
    assert!(ask(queue, "holder:1.1"));
    server.run(&["EVAL", FILL, "3", &list, &deadlines, &alive, "50", "-1000"]);
    for owner in ["one:1.1", "two:1.1"] {
        assert!(!ask(queue, owner));
        // A waiter of Java in front would take 300 s from the deadline.
        let left = queue.left_ms()[owner];
        assert!((0..=PATIENCE_MS).contains(&left), "{owner} waits for {left} ms beside Java");
    }
}
