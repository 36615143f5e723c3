//! Every request has its effect exactly once, wherever the network breaks while the request is under way.

use crate::support::faults::{fences, rig_without_fences, without_fences};
use crate::support::prelude::*;

const NAME: &str = "once";

#[test]
fn an_acquire_cut_at_any_byte_takes_the_lock_once() {
    let (rig, lock) = Rig::start().and(|rig| rig.client().get_lock(NAME));
    at_each(
        |request, reply| cuts(0..=request, reply),
        &rig,
        &rig.script("acquire"),
        || (),
        |()| {
            let guard = lock.try_lock().unwrap().expect("no other client wants the lock");
            rig.assert_held_by(NAME, guard.owner(), 1);
            assert!((29_000..=30_000).contains(&rig.time_to_live(NAME)));
            assert!(guard.is_held() && lock.hold_count() == 1);
            guard.unlock().unwrap();
            rig.assert_no_keys();
        },
    );
}

#[test]
fn a_reentry_cut_at_any_byte_counts_once() {
    let (rig, lock) = Rig::start().and(|rig| rig.client().get_lock(NAME));
    let longer = lock.with_lease(Duration::from_secs(60));
    at_every_byte(
        &rig,
        &rig.script("reenter"),
        || lock.lock().unwrap(),
        |outer| {
            let inner = longer.try_lock().unwrap().expect("this thread holds the lock");
            rig.assert_held_by(NAME, outer.owner(), 2);
            assert!((59_000..=60_000).contains(&rig.time_to_live(NAME)));
            assert!(inner.is_held() && lock.hold_count() == 2);
            drop(inner);
            rig.assert_held_by(NAME, outer.owner(), 1);
            outer.unlock().unwrap();
            rig.assert_no_keys();
        },
    );
}

#[test]
fn a_partial_release_cut_at_any_byte_gives_one_hold_back() {
    let (rig, lock) = Rig::start().and(|rig| rig.client().get_lock(NAME));
    let longer = lock.with_lease(Duration::from_secs(60));
    let twice = || (lock.lock().unwrap(), longer.lock().unwrap());
    at_every_byte(&rig, &rig.release(true), twice, |(outer, inner)| {
        inner.unlock().unwrap();
        rig.assert_held_by(NAME, outer.owner(), 1);
        assert!((29_000..=30_000).contains(&rig.time_to_live(NAME)), "the lease of the outer hold");
        assert!(outer.is_held() && lock.hold_count() == 1);
        outer.unlock().unwrap();
        rig.assert_no_keys();
    });
}

#[test]
fn a_last_release_cut_at_any_byte_opens_the_lock_once() {
    let (rig, lock) = Rig::start().and(|rig| rig.client().get_lock(NAME));
    let points = at_every_byte(
        &rig,
        &rig.release(false),
        || lock.lock().unwrap(),
        |guard| {
            guard.unlock().unwrap();
            assert_eq!(lock.hold_count(), 0);
            rig.assert_no_keys();
        },
    );
    assert_eq!(rig.server.calls_of("publish"), points, "each release is announced once");
}

#[test]
fn a_renewal_of_the_watchdog_cut_at_any_byte_costs_no_hold() {
    const CLIENTS: usize = 3;
    let rigs: Vec<Rig> = (0..CLIENTS).map(|_| Rig::start()).collect();
    thread::scope(|scope| {
        for (part, rig) in rigs.iter().enumerate() {
            scope.spawn(move || {
                let client = rig.builder().watchdog(Duration::from_secs(20), ms(100)).connect().unwrap();
                let guard = client.get_lock(NAME).lock().unwrap();
                let renewals = rig.script("renew");
                let (request, reply) = lengths(rig, &renewals);
                for then in faults(request, reply).into_iter().skip(part).step_by(CLIENTS) {
                    let rule = rig.proxy.rule(renewals.clone(), then.clone());
                    let disturbed = rule.wait_hit(SOON);
                    let next = rig.proxy.wait_for_since(disturbed.number + 1, &renewals, SOON);
                    assert!(matches!(rig.proxy.wait_fate(&next, SOON), Fate::Answered(_)), "{then:?}");
                    rig.assert_held_by(NAME, guard.owner(), 1);
                    assert!(rig.time_to_live(NAME) <= 20_000);
                    assert!(guard.is_held() && guard.lost().is_none(), "{then:?}");
                }
                guard.unlock().unwrap();
                rig.assert_no_keys();
            });
        }
    });
}

#[test]
fn a_force_unlock_cut_at_any_byte_is_sent_once() {
    let (rig, lock) = Rig::start().and(|rig| rig.client().get_lock(NAME));
    let holder = rig.direct();
    let force = rig.script("force_release");
    let mut opened = 0;
    let mut one = |then: Option<Then>| {
        let held = holder.get_lock(NAME).lock().unwrap();
        let mark = rig.proxy.mark();
        if let Some(then) = then.clone() {
            rig.proxy.rule(force.clone(), then);
        }
        let answer = lock.force_unlock();
        let is_open = rig.server.keys().is_empty();
        opened += u64::from(is_open);
        match answer {
            Ok(was_held) => assert!(was_held && is_open, "{then:?}"),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Unknown, "{then:?}: {error}");
                let sent = rig.proxy.fitting_since(mark, &force);
                assert_eq!(sent.len(), 1, "{then:?}: a second request could open another owner's lock");
                assert!(rig.fence_of(&sent[0]).is_some(), "{then:?}: the request may still arrive");
            }
        }
        if is_open {
            held.keep_until_expiry()
        } else {
            held.unlock().unwrap()
        }
        rig.assert_no_keys();
    };
    one(None);
    let (request, reply) = lengths(&rig, &force);
    faults(request, reply).into_iter().for_each(|then| one(Some(then)));
    assert!(opened > reply as u64, "every release whose answer was cut");
}

#[test]
fn a_force_unlock_without_an_answer_never_arrives_later() {
    let (rig, lock) = Rig::start().and(|rig| rig.impatient().connect().unwrap().get_lock(NAME));
    let first = rig.direct().get_lock(NAME).lock().unwrap();
    let rule = rig.proxy.rule(rig.script("force_release"), Then::HoldRequest);
    assert_eq!(lock.force_unlock().unwrap_err().kind(), ErrorKind::Unknown);
    let original = rule.wait_hit(SOON);
    eventually(SOON, "the request is fenced", || rig.fence_of(&original).is_some());
    first.unlock().unwrap();
    let next = rig.direct().get_lock(NAME).lock().unwrap();
    rule.release();
    rig.proxy.wait_fate(&original, SOON);
    rig.assert_held_by(NAME, next.owner(), 1);
    next.unlock().unwrap();
}

#[test]
fn a_force_unlock_whose_answer_is_lost_ends_the_own_hold_too() {
    let (rig, client) = Rig::start().and(Rig::client);
    for lock in [client.get_lock(NAME), client.get_lock(NAME).with_lease(SOON * 2)] {
        let guard = lock.lock().unwrap();
        rig.proxy.rule(rig.script("force_release"), Then::CutReplyAfter(0));
        assert_eq!(lock.force_unlock().unwrap_err().kind(), ErrorKind::Unknown);
        rig.assert_no_keys();
        assert_eq!(guard.wait_lost(ms(1_000)), Some(Loss::Gone));
    }
}

#[test]
fn an_acquire_that_was_given_up_leaves_no_lock_behind() {
    in_each_silence(|rig, then| {
        let lock = rig.impatient().connect().unwrap().get_lock(NAME);
        let acquire = rig.script("acquire");
        let deaf = rig.proxy.rule(fences().times(99), Then::SwallowRequest);
        let rule = rig.proxy.rule(acquire.clone(), then.clone());
        let error = lock.try_lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{then:?}: {error}");
        deaf.remove();
        let original = rule.wait_hit(SOON);
        let released = rig.proxy.wait_for_since(original.number, &rig.release(false), SOON);
        let fence = rig.fence_of(&original).expect("the original is fenced");
        assert!(fence.number < released.number, "{then:?}: cleared away before the fence");
        rig.proxy.wait_fate(&released, SOON);
        rig.proxy.heal();
        rig.proxy.wait_fate(&original, SOON);
        rig.assert_no_keys();
    });
}

#[test]
fn a_release_that_cannot_be_fenced_in_time_is_settled_later() {
    in_each_silence(|rig, then| {
        let lock = rig.impatient().connect().unwrap().get_lock(NAME);
        let release = rig.release(false);
        let guard = lock.lock().unwrap();
        let mark = rig.proxy.mark();
        let deaf = rig.proxy.rule(fences().times(99), Then::SwallowRequest);
        let rule = rig.proxy.rule(release.clone(), then.clone());
        let error = guard.unlock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unknown, "{then:?}: {error}");
        assert_eq!(lock.hold_count(), 0);
        deaf.remove();
        rig.eventually_no_keys(SOON);
        rig.proxy.wait_for_since(mark, &release.clone().nth(2), SOON);
        rig.assert_fenced_before_repeat(mark, &release);
        rig.proxy.heal();
        rig.proxy.wait_fate(&rule.wait_hit(SOON), SOON);
        rig.assert_no_keys();
    });
}

/// Breaks the connection in the request and at every byte of the reply, and checks each time.
pub(crate) fn at_every_byte<T>(rig: &Rig, when: &When, before: impl FnMut() -> T, act: impl FnMut(T)) -> u64 {
    at_each(faults, rig, when, before, act)
}

fn at_each<T>(
    faults: fn(usize, usize) -> Vec<Then>,
    rig: &Rig,
    when: &When,
    mut before: impl FnMut() -> T,
    mut act: impl FnMut(T),
) -> u64 {
    let mark = rig.proxy.mark();
    act(before());
    let (request, reply) = lengths_since(mark, rig, when);
    let faults = faults(request, reply);
    let points = faults.len() as u64;
    for then in faults {
        let prepared = before();
        let mark = rig.proxy.mark();
        let rule = rig.proxy.rule(when.clone(), then.clone());
        let context = Context(format!("{then:?}"));
        act(prepared);
        assert_eq!(rule.hits(), 1);
        let seen_whole = matches!(then, Then::CutReplyAfter(length) if length == reply);
        if !seen_whole {
            rig.assert_fenced_before_repeat(mark, when);
        }
        drop(context);
    }
    points + 1
}

/// Names the place of the fault when a check fails.
struct Context(String);

impl Drop for Context {
    fn drop(&mut self) {
        if thread::panicking() {
            eprintln!("with {}", self.0);
        }
    }
}

/// The lengths of an undisturbed request of this sort and its reply.
pub(crate) fn lengths(rig: &Rig, when: &When) -> (usize, usize) {
    lengths_since(0, rig, when)
}

fn lengths_since(mark: u64, rig: &Rig, when: &When) -> (usize, usize) {
    let request = rig.proxy.wait_for_since(mark, when, SOON);
    let Fate::Answered(reply) = rig.proxy.wait_fate(&request, SOON) else { panic!("{request:?} was not answered") };
    (request.bytes.len(), reply.len())
}

/// The sorts of places where a connection can break: before the request, inside, after the request, at each byte of the
/// reply. A server runs nothing of a request that is cut, so every byte of a request is tried with an acquire alone.
pub(crate) fn faults(request: usize, reply: usize) -> Vec<Then> {
    cuts([0, 1, request / 2, request - 1, request], reply)
}

fn cuts(requests: impl IntoIterator<Item = usize>, reply: usize) -> Vec<Then> {
    let requests = requests.into_iter().map(Then::CutRequestAfter);
    let replies = (0..=reply).map(Then::CutReplyAfter);
    [Then::CutBeforeRequest].into_iter().chain(requests).chain(replies).collect()
}

/// Runs a case for each way to lose an answer without a cut, two on each server, side by side.
pub(crate) fn in_each_silence(case: impl Fn(&Rig, &Then) + Sync) {
    at_once(silences().chunks(2), |silences| {
        let rig = Rig::start();
        silences.iter().for_each(|then| case(&rig, then));
    });
}

/// The ways to lose an answer without a cut.
pub(crate) fn silences() -> Vec<Then> {
    vec![
        Then::SwallowRequest,
        Then::SwallowReply,
        Then::HoldRequest,
        Then::HoldReply,
        Then::DelayRequest(PATIENCE * 2),
        Then::DelayReply(PATIENCE * 2),
        Then::Mute(Direction::Both),
        Then::Mute(Direction::Replies),
    ]
}

#[test]
fn a_grant_after_two_lost_answers_is_not_cleared_away() {
    let rig = rig_without_fences();
    let client = without_fences(&rig);
    let holder = rig.direct().get_lock("twice").owned().lock().unwrap();
    let (lock, acquire) = (client.get_lock("twice"), rig.script("acquire"));
    let busy = rig.proxy.rule(acquire.clone(), Then::CutReplyAfter(0));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock.try_lock_for(SOON).unwrap().expect("it is released");
            // The background clears away twice a second.
            assert_eq!(guard.wait_lost(ms(1_200)), None);
            assert_eq!(rig.server.query::<i64>(&["HEXISTS", "twice", guard.owner()]), 1);
            guard.unlock().unwrap();
        });
        let question = busy.wait_hit(SOON);
        rig.proxy.wait_for_since(question.number + 1, &acquire, SOON);
        let granted = rig.proxy.rule(acquire.clone(), Then::CutReplyAfter(0));
        holder.unlock().unwrap();
        granted.wait_hit(SOON);
        waiter.join().unwrap();
    });
}
