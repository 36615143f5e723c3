//! Requests without an answer: repeated in time, written in the background, reported truthfully.

use super::{KINDS, Kind, for_every_kind, for_every_reentrant_kind, for_every_single_kind, key};
use crate::support::faults::fences;
use crate::support::prelude::*;

/// The command time-out of these tests: a busy machine still answers within a part of the time-out.
const BOUND: Duration = Duration::from_secs(4);

fn patient(proxy: &Proxy, resp3: bool) -> Client {
    let url = if resp3 { format!("{}?protocol=resp3", proxy.url()) } else { proxy.url() };
    Client::builder(&url).command_timeout(BOUND).drop_timeout(BOUND).connect().unwrap()
}

/// A client that gives up after a second.
fn impatient(proxy: &Proxy) -> Client {
    Client::builder(&proxy.url()).command_timeout(ms(1_000)).drop_timeout(ms(500)).connect().unwrap()
}

#[test]
fn an_answer_that_never_comes_costs_a_part_of_the_bound() {
    for_every_kind(|kind| {
        let (rig, name) = (Rig::shared(), kind.fresh());
        for resp3 in [false, true] {
            let lock = kind.get_lock(&patient(&rig.proxy, resp3), &name);
            // The scripts are known and the connection stands.
            lock.lock().unwrap().unlock().unwrap();
            let swallowed = |what: &str, work: &dyn Fn()| {
                let rule = rig.proxy.rule(When::script(), Then::SwallowReply);
                let (took, ()) = timed(work);
                assert_eq!(rule.hits(), 1, "{what}");
                assert!(took < BOUND, "{what} took {took:?}");
            };
            let outer = lock.lock().unwrap();
            swallowed("extend", &|| outer.extend(Duration::from_secs(60)).unwrap());
            if kind.reenters {
                swallowed("re-entry", &|| lock.try_lock().unwrap().expect("ours").leave_to_unlock());
                swallowed("inner release", &|| lock.unlock().unwrap());
            }
            outer.leave_to_unlock();
            swallowed("release", &|| lock.unlock().unwrap());
            assert!(ttl_ms(rig.server, &name) == -2);
            swallowed("acquire", &|| drop(lock.try_lock().unwrap().expect("free")));
        }
    });
}

#[test]
fn an_inner_release_reaches_redis_later_if_not_at_once() {
    for_every_reentrant_kind(|kind| {
        let (rig, name) = (Rig::shared(), kind.fresh());
        let client = impatient(&rig.proxy);
        let lock = kind.get_lock(&client, &name);
        let outer = lock.with_lease(Duration::from_secs(60)).lock().unwrap();
        let inner = lock.with_lease(Duration::from_secs(3_600)).lock().unwrap();
        rig.proxy.mute(Scope::All, Direction::Both);
        inner.unlock().unwrap_err();
        rig.proxy.cut(Scope::All);
        rig.proxy.heal();
        let lowered = || (1..=60_000).contains(&ttl_ms(rig.server, &name));
        eventually(SOON, "the hour ends with its guard", lowered);
        assert!(outer.is_held());
        assert_eq!(lock.hold_count(), 1);
        outer.unlock().unwrap();
    });
}

#[test]
fn an_inner_release_keeps_what_an_extension_promised_meanwhile() {
    for_every_reentrant_kind(|kind| {
        let (rig, name) = (Rig::shared(), kind.fresh());
        let lock = kind.get_lock(&patient(&rig.proxy, false), &name);
        let outer = lock.with_lease(Duration::from_secs(5)).lock().unwrap();
        let inner = lock.lock().unwrap();
        let hold = outer.hold().clone();
        let late = rig.proxy.rule(When::script(), Then::DelayReply(ms(300)));
        thread::scope(|scope| {
            let extension = scope.spawn(|| hold.extend(Duration::from_secs(60)));
            eventually(SOON, "the extension is under way", || late.hits() == 1);
            inner.unlock().unwrap();
            joined(extension).unwrap();
        });
        assert!(ttl_ms(rig.server, &name) > 50_000);
        assert!(outer.remaining() > Duration::from_secs(50), "{:?}", outer.remaining());
        outer.unlock().unwrap();
    });
}

#[test]
fn a_kept_part_that_ends_before_a_turn_leaves_nothing() {
    for_every_reentrant_kind(|kind| {
        let (rig, name) = (Rig::shared(), kind.fresh());
        let client = Client::builder(&rig.proxy.url()).command_timeout(BOUND).drop_timeout(ms(300)).connect().unwrap();
        let lock = kind.get_lock(&client, &name);
        for misses_its_turn in [false, true] {
            let outer = lock.lock().unwrap();
            let inner = lock.with_lease(ms(500)).lock().unwrap();
            let hold = outer.hold().clone();
            inner.keep_until_expiry();
            let late = rig.proxy.rule(When::script(), Then::DelayReply(ms(900)));
            thread::scope(|scope| {
                let extension = scope.spawn(|| hold.extend(ms(500)));
                eventually(SOON, "the extension is under way", || late.hits() == 1);
                if misses_its_turn {
                    drop(outer)
                } else {
                    outer.unlock().unwrap()
                }
                let _ = joined(extension);
            });
            eventually(SOON, "the lock is free", || ttl_ms(rig.server, &name) == -2);
        }
    });
}

#[test]
fn a_release_without_a_turn_is_written_after_the_one_before_it() {
    let (rig, name) = (Rig::shared(), fresh("alike"));
    let own = Client::builder(&rig.proxy.url()).command_timeout(BOUND).drop_timeout(ms(300)).connect().unwrap();
    let lock = own.get_lock(&name);
    let outer = lock.lock().unwrap();
    let kept = lock.with_lease(ms(15_000)).lock().unwrap();
    let third = lock.lock().unwrap();
    kept.keep_until_expiry();
    rig.proxy.mute(Scope::All, Direction::Both);
    drop(third);
    rig.proxy.cut(Scope::All);
    rig.proxy.heal();
    let one_is_left = When::script().that(|sent| sent.text(4) == "1");
    let late = rig.proxy.rule(one_is_left, Then::DelayReply(ms(1_000)));
    eventually(SOON, "the background writes", || late.hits() == 1);
    drop(outer); // the counts stay, and the time to live is that of the part that was kept
    eventually(SOON, "the time is written", || (1..15_000).contains(&ttl_ms(rig.server, &name)));
}

#[test]
fn a_reentry_in_doubt_is_taken_back_later() {
    for_every_reentrant_kind(|kind| {
        let (rig, name) = (Rig::shared(), kind.fresh());
        let lock = kind.get_lock(&impatient(&rig.proxy), &name);
        drop((lock.lock().unwrap(), lock.lock().unwrap())); // from here on the server knows the scripts
        let outer = lock.with_lease(Duration::from_secs(60)).lock().unwrap();
        let deaf = rig.proxy.rule(fences().always(), Then::SwallowRequest);
        let mute = rig.proxy.rule(When::script().always(), Then::SwallowReply);
        lock.with_lease(Duration::from_secs(3_600)).try_lock().unwrap_err();
        assert!(ttl_ms(rig.server, &name) > 60_000, "the re-entry was carried out");
        deaf.remove();
        mute.remove();
        let lowered = || (1..=60_000).contains(&ttl_ms(rig.server, &name));
        eventually(SOON, "the hour ends without its guard", lowered);
        if kind.counted {
            assert!(
                fields(rig.server, &name)
                    .iter()
                    .any(|(field, count)| { field.starts_with(outer.owner()) && count == "1" })
            );
        }
        outer.unlock().unwrap();
        assert!(ttl_ms(rig.server, &name) == -2);
    });
}

#[test]
fn a_reentry_after_a_release_in_doubt_is_believed_in_full() {
    for_every_reentrant_kind(|kind| {
        let (rig, name) = (Rig::shared(), kind.fresh());
        let lock = kind.get_lock(&impatient(&rig.proxy), &name);
        let outer = lock.with_lease(Duration::from_secs(20)).lock().unwrap();
        let inner = lock.with_lease(Duration::from_secs(60)).lock().unwrap();
        let deaf = rig.proxy.rule(fences().always(), Then::SwallowRequest);
        let mute = rig.proxy.rule(When::script().always(), Then::SwallowReply);
        inner.unlock().unwrap_err();
        deaf.remove();
        mute.remove();
        let again = lock.with_lease(Duration::from_secs(60)).try_lock_for(SOON).unwrap().expect("ours");
        assert!(outer.remaining() > Duration::from_secs(50), "{:?}", outer.remaining());
        assert!(ttl_ms(rig.server, &name) > 50_000);
        again.unlock().unwrap();
        outer.unlock().unwrap();
    });
}

#[test]
fn an_extension_in_doubt_does_not_outlive_its_hold() {
    for_every_reentrant_kind(|kind| {
        let (rig, name) = (Rig::shared(), kind.fresh());
        let lock = kind.get_lock(&impatient(&rig.proxy), &name);
        let outer = lock.with_lease(Duration::from_secs(20)).lock().unwrap();
        let inner = lock.with_lease(Duration::from_secs(20)).lock().unwrap();
        let deaf = rig.proxy.rule(fences().always(), Then::SwallowRequest);
        let held = rig.proxy.rule(When::script(), Then::HoldRequest);
        outer.extend(Duration::from_secs(3_600)).unwrap_err();
        deaf.remove();
        inner.unlock().unwrap();
        held.release();
        rig.proxy.wait_fate(&held.wait_hit(SOON), SOON);
        assert!(ttl_ms(rig.server, &name) <= 20_000, "{}", ttl_ms(rig.server, &name));
        outer.unlock().unwrap();
    });
}

#[test]
fn a_hold_has_one_request_at_a_time() {
    for_every_single_kind(|kind| {
        let (rig, name) = (Rig::shared(), kind.fresh());
        let guard = kind.get_lock(&patient(&rig.proxy, false), &name).owned().lock().unwrap();
        let hold = guard.hold().clone();
        thread::scope(|scope| {
            let held = rig.proxy.rule(When::script(), Then::HoldRequest);
            let extending = scope.spawn(|| hold.extend(Duration::from_secs(60)));
            let first = held.wait_hit(SOON);
            let releasing = scope.spawn(|| guard.unlock());
            thread::sleep(ms(200)); // the absence of a request has no sign to wait for
            assert!(rig.proxy.fitting_since(first.number + 1, &When::script()).is_empty(), "two requests at once");
            held.release();
            let _ = joined(extending); // the hold was given back meanwhile
            joined(releasing).unwrap();
        });
        assert!(ttl_ms(rig.server, &name) == -2);
    });
}

#[test]
fn a_hold_that_ran_out_before_the_next_grant_is_expired() {
    for_every_kind(|kind| {
        let lock = kind.get_lock(&client(), &kind.fresh()).with_lease(ms(300));
        let first = lock.owned().lock().unwrap();
        // A waiter of the same client is granted the lock when the lease is over in Redis.
        let second = lock.owned().try_lock_for(SOON).unwrap().expect("the lease ends");
        assert_eq!(first.lost(), Some(Loss::Expired));
        drop((first, second));
    });
}

#[test]
fn a_request_of_a_cancelled_wait_leaves_no_lock_behind() {
    for_every_kind(|kind| {
        let server = RedisServer::shared();
        let proxy = Proxy::start(server.address());
        let client = Client::builder(&proxy.url()).command_timeout(ms(2_000)).connect().unwrap();
        let lock = kind.get_lock(&client, &kind.fresh());
        drop(lock.lock().unwrap()); // from here on the scripts are known
        let held = proxy.rule(When::any().containing(key(lock.name())), Then::HoldRequest);
        let stop = Cancel::new();
        thread::scope(|scope| {
            let waiting = lock.with_cancel(&stop);
            let waiter = scope.spawn(move || waiting.lock().map(drop).unwrap_err().kind());
            let original = held.wait_hit(SOON);
            stop.cancel();
            assert!(matches!(joined(waiter), ErrorKind::Cancelled | ErrorKind::Unknown));
            held.release();
            proxy.wait_fate(&original, SOON);
            eventually(SOON, "the granted lock is released", || ttl_ms(server, key(lock.name())) == -2);
        });
    });
}

#[test]
fn unlock_by_another_kind_of_lock_gives_nothing_back() {
    let client = client();
    for held in KINDS {
        for other in KINDS.iter().filter(|other| other.label != held.label) {
            let name = fresh("unlock");
            held.get_lock(&client, &name).lock().unwrap().leave_to_unlock();
            if family(held) == family(other) {
                continue; // handles of one family share their holds
            }
            let by_other = other.get_lock(&client, &name);
            assert_eq!(kind_of(by_other.unlock()), ErrorKind::OtherKind, "{} by {}", held.label, other.label);
            assert!(held.get_lock(&client, &name).is_held_by_current_thread());
            held.get_lock(&client, &name).unlock().unwrap();
        }
    }
}

/// The kinds whose handles re-enter each other's holds.
fn family(kind: &Kind) -> &str {
    match kind.label {
        "plain" | "fair" | "spin" | "non-reentrant" | "non-reentrant fair" => "hash",
        label => label,
    }
}

#[test]
fn clients_of_a_paused_server_do_not_fence_in_step() {
    const CLIENTS: usize = 20;
    let rig = Rig::around(RedisServer::start());
    let locks: Vec<Lock> = (0..CLIENTS)
        .map(|index| {
            let lock = patient(&rig.proxy, false).get_lock(format!("step:{index}"));
            lock.lock().unwrap().unlock().unwrap();
            lock
        })
        .collect();
    rig.server.pause();
    let mark = rig.proxy.mark();
    thread::scope(|scope| {
        let tries: Vec<_> = locks.iter().map(|lock| scope.spawn(|| drop(lock.try_lock()))).collect();
        eventually(SOON, "all have asked", || rig.proxy.fitting_since(mark, &When::script()).len() >= CLIENTS);
        // Each client then makes a new connection, to fence the unanswered request.
        let mut first_of: Vec<Request> = vec![];
        let mut known = BTreeSet::new();
        let asked: Vec<_> = rig.proxy.fitting_since(mark, &When::script());
        known.extend(asked.iter().map(|request| request.connection));
        eventually(SOON, "all are about to fence", || {
            first_of = rig.proxy.fitting_since(mark, &When::command("CLIENT").containing("SETNAME"));
            first_of.len() >= CLIENTS
        });
        let times: Vec<Instant> = first_of.iter().take(CLIENTS).map(|request| request.at).collect();
        let spread = *times.iter().max().unwrap() - *times.iter().min().unwrap();
        rig.server.resume();
        tries.into_iter().for_each(|one| one.join().unwrap());
        // The fences may spread over a sixth of the bound; a busy machine alone spreads less than half of that time. What
        // comes while the proxy stands still comes at the end of that time.
        assert!(spread + STANDSTILLS >= BOUND / 12, "all within {spread:?}");
        assert!(rig.proxy.fitting_since(mark, &fences()).len() <= 2 * CLIENTS, "no storm of fences");
        assert!(spread <= BOUND / 6 + SCHEDULING * 2);
    });
}
