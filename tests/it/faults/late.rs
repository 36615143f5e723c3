//! Requests that arrive late, after the sender gave up, repeated or went on, change nothing.

use lockson_harness::proxy::RuleHandle;

use crate::support::faults::{fences, meek, rig_without_fences, without_fences};
use crate::support::prelude::*;

const NAME: &str = "late";

#[test]
fn a_late_original_is_fenced_before_its_repetition() {
    let (rig, lock) = Rig::start().and(|rig| rig.impatient().connect().unwrap().get_lock(NAME));
    for _ in 0..10 {
        let (rule, original, fence) = take_with_the_original_held(&rig, &lock);
        assert_eq!(rig.proxy.fate(&fence), Fate::Answered(b":1\r\n".to_vec()), "the fence found the connection");
        assert_ne!(fence.connection, original.connection);
        rule.release();
        let fate = rig.proxy.wait_fate(&original, SOON);
        assert!(matches!(fate, Fate::Failed(_)), "the server took the original: {fate:?}");
        rig.assert_no_keys();
    }
}

#[test]
fn an_unanswered_fence_is_repeated_before_the_request() {
    let (rig, lock) = Rig::start().and(|rig| rig.impatient().connect().unwrap().get_lock(NAME));
    for then in [Then::CutBeforeRequest, Then::CutRequestAfter(20), Then::SwallowRequest, Then::CutReplyAfter(0)] {
        let fence = rig.proxy.rule(fences(), then);
        let (rule, original, _) = take_with_the_original_held(&rig, &lock);
        fence.wait_hit(SOON);
        rule.release();
        assert!(matches!(rig.proxy.wait_fate(&original, SOON), Fate::Failed(_)));
        rig.assert_no_keys();
    }
}

#[test]
fn background_cleanup_fences_first_however_long_it_takes() {
    let (rig, lock) = Rig::start().and(|rig| rig.impatient().connect().unwrap().get_lock(NAME));
    let held = rig.proxy.rule(rig.script("acquire"), Then::HoldRequest);
    let fence = rig.proxy.rule(fences().times(3), Then::SwallowRequest);
    assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unknown);
    fence.wait_hits(3, SOON);
    let original = held.wait_hit(SOON);
    let cleared = rig.proxy.wait_for_since(original.number, &rig.release(false), SOON);
    let fence = rig.fence_of(&original).expect("the request is fenced");
    assert!(fence.number < cleared.number, "cleared away before the fence");
    held.release();
    rig.proxy.wait_fate(&original, SOON);
    rig.assert_no_keys();
}

#[test]
fn an_unfenceable_leftover_is_cleared_in_the_background() {
    let rig = rig_without_fences();
    let lock = without_fences(&rig).get_lock(NAME);
    let (rule, original, fence) = take_with_the_original_held(&rig, &lock);
    let Fate::Answered(refusal) = rig.proxy.fate(&fence) else { panic!("the fence was not answered") };
    assert!(refusal.starts_with(b"-NOPERM"));
    rule.release();
    assert_eq!(
        rig.proxy.wait_fate(&original, SOON),
        Fate::Answered(b"*1\r\n:1\r\n".to_vec()),
        "the late request took the lock"
    );
    // The lease of the late grant would be 30 s.
    rig.eventually_no_keys(Duration::from_secs(3));
}

/// The extension has the copies in doubt, and keeps the release from its turn.
#[test]
fn a_leftover_is_cleared_after_an_end_beside_an_extension() {
    let rig = rig_without_fences();
    let builder = Client::builder(&meek(&rig)).command_timeout(PATIENCE * 2).drop_timeout(PATIENCE / 2);
    let client = builder.connect().unwrap();
    let rule = rig.proxy.rule(rig.script("acquire"), Then::HoldRequest);
    let guard = client.get_lock(NAME).try_lock_for(SOON).unwrap().expect("no other client wants the lock");
    let original = rule.wait_hit(SOON);
    let mute = rig.proxy.rule(rig.script("renew").times(99), Then::SwallowRequest);
    thread::scope(|scope| {
        let hold = guard.hold().clone();
        let extension = scope.spawn(move || hold.extend(ms(60_000)));
        mute.wait_hit(SOON);
        drop(guard);
        rig.eventually_no_keys(SOON);
        assert!(!extension.is_finished());
        extension.join().unwrap().unwrap_err();
    });
    rule.release();
    assert_eq!(rig.proxy.wait_fate(&original, SOON), Fate::Answered(b"*1\r\n:1\r\n".to_vec()));
    rig.eventually_no_keys(Duration::from_secs(3));
}

#[test]
fn a_leftover_does_not_disturb_the_next_holder() {
    let rig = rig_without_fences();
    let lock = without_fences(&rig).get_lock(NAME);
    let (rule, original, _) = take_with_the_original_held(&rig, &lock);
    let next = rig.direct().get_lock(NAME).lock().unwrap();
    rule.release();
    let Fate::Answered(reply) = rig.proxy.wait_fate(&original, SOON) else { panic!("the request has no answer") };
    assert!(reply.starts_with(b"*2\r\n:0\r\n"), "the reply says that the lock is busy");
    let releases = rig.proxy.mark();
    rig.proxy.wait_for_since(releases, &rig.release(false).nth(2), SOON);
    rig.assert_held_by(NAME, next.owner(), 1);
    next.unlock().unwrap();
}

#[test]
fn late_copies_never_touch_a_newer_hold_of_their_thread() {
    let (rig, lock) = Rig::start().and(|rig| rig.client().get_lock(NAME));
    let outer = lock.lock().unwrap();
    lock.lock().unwrap().unlock().unwrap();
    outer.extend(Duration::from_secs(90)).unwrap();
    outer.unlock().unwrap();
    let old = rig.proxy.fitting(&When::script());
    assert_eq!(old.len(), 5, "acquire, re-enter, release one, renew, release all");
    let newer = lock.with_lease(Duration::from_secs(20)).lock().unwrap();
    let again = lock.with_lease(Duration::from_secs(20)).lock().unwrap();
    for request in &old {
        let copy = rig.proxy.send_copy_anew(request);
        assert!(matches!(rig.proxy.wait_fate(&copy, SOON), Fate::Answered(_)));
        rig.assert_held_by(NAME, newer.owner(), 2);
        assert!((18_000..=20_000).contains(&rig.time_to_live(NAME)));
    }
    again.unlock().unwrap();
    newer.unlock().unwrap();
    rig.assert_no_keys();
}

#[test]
fn a_late_partial_release_never_shortens_the_hold() {
    for may_fence in [true, false] {
        let rig = rig_without_fences();
        let client = if may_fence { rig.impatient().connect().unwrap() } else { without_fences(&rig) };
        let lock = client.get_lock(NAME);
        let outer = lock.with_lease(Duration::from_secs(4)).lock().unwrap();
        let inner = lock.with_lease(Duration::from_secs(1)).lock().unwrap();
        let deaf = rig.proxy.rule(fences().times(99), Then::SwallowRequest);
        let rule = rig.proxy.rule(rig.release(true), Then::HoldRequest);
        assert_eq!(inner.unlock().unwrap_err().kind(), ErrorKind::Unknown);
        deaf.remove();
        let longer = lock.with_lease(Duration::from_secs(60)).lock().unwrap();
        rule.release();
        rig.proxy.wait_fate(&rule.wait_hit(SOON), SOON);
        let believed = outer.remaining().as_millis();
        let real = u128::try_from(rig.time_to_live(NAME)).unwrap();
        assert!(believed <= real, "may fence: {may_fence}; believed for {believed} ms, but the key ends in {real} ms");
        drop((longer, outer));
    }
}

#[test]
fn a_late_take_never_shortens_an_extension() {
    let (rig, client) = Rig::start().and(Rig::client);
    let sides = client.get_read_write_lock("sides");
    let locks = [
        client.get_lock("plain"),
        client.get_fair_lock("fair"),
        client.get_non_reentrant_lock("once"),
        client.get_token_lock("token"),
        client.get_group_lock("group", ["value"]),
        client.get_read_write_lock("write").write(),
        sides.read(),
    ];
    for lock in &locks {
        let (guard, copy) = taken_again_late(&rig, |lease| lock.with_lease(lease).lock().unwrap());
        assert!(matches!(rig.proxy.wait_fate(&copy, SOON), Fate::Answered(_)));
        if lock.name() == sides.name() {
            // The time to live of the others is written anew.
            rig.direct().get_read_write_lock(sides.name()).read().lock().unwrap().unlock().unwrap();
        }
        let left = lock.remaining_time_to_live().unwrap().expect("held");
        assert!(left > ms(50_000), "{}: {left:?}", lock.name());
        guard.unlock().unwrap();
    }
    let permits = client.get_permit_expirable_semaphore("permits");
    permits.set_permits(2).unwrap();
    let (guard, copy) = taken_again_late(&rig, |lease| permits.with_lease(lease).acquire(2).unwrap());
    assert!(matches!(rig.proxy.wait_fate(&copy, SOON), Fate::Answered(_)));
    for id in guard.ids() {
        let left = permits.remaining_time_to_live(&id).unwrap().expect("taken");
        assert!(left > ms(50_000), "{left:?}");
    }
    guard.release().unwrap();
}

/// Takes for 3 s, extends to a minute, and sends a copy of the take.
fn taken_again_late<T, On>(rig: &Rig, take: impl FnOnce(Duration) -> Guard<T, On>) -> (Guard<T, On>, Request) {
    let mark = rig.proxy.mark();
    let guard = take(ms(3_000));
    let taken = rig.proxy.fitting_since(mark, &When::script());
    guard.extend(ms(60_000)).unwrap();
    let copy = rig.proxy.send_copy_anew(&taken[0]);
    (guard, copy)
}

#[test]
fn an_inner_release_limits_no_later_time_without_fences() {
    let rig = rig_without_fences();
    let client = without_fences(&rig);
    let cut = rig.proxy.rule(rig.script("acquire"), Then::CutReplyAfter(0));
    let lock = client.get_lock(NAME).with_lease(ms(3_000));
    let outer = lock.try_lock_for(SOON).unwrap().expect("free");
    cut.wait_hit(SOON);
    lock.lock().unwrap().unlock().unwrap();
    outer.extend(ms(60_000)).unwrap();
    assert!(outer.remaining() > ms(50_000), "{:?}", outer.remaining());
    lock.lock().unwrap().unlock().unwrap();
    let inner = client.get_lock(NAME).lock().unwrap();
    outer.unlock().unwrap();
    assert!(inner.remaining() > ms(25_000), "{:?}", inner.remaining());
}

#[test]
fn an_answer_that_is_older_than_its_lease_is_no_lock() {
    let (rig, lock) = Rig::start().and(|rig| rig.client().get_lock(NAME).with_lease(ms(200)));
    let other = rig.direct();
    std::thread::scope(|scope| {
        let rule = rig.proxy.rule(rig.script("acquire"), Then::HoldReply);
        let late = scope.spawn(|| lock.try_lock_for(ms(400)).map(|guard| guard.map(|guard| guard.is_held())));
        rig.proxy.wait_fate(&rule.wait_hit(SOON), SOON);
        let next = other.get_lock(NAME).lock().unwrap(); // when the lease is over
        rule.release();
        assert_eq!(late.join().unwrap().unwrap(), None);
        rig.assert_held_by(NAME, next.owner(), 1);
        next.unlock().unwrap();
    });
    rig.assert_no_keys();
}

/// Takes the lock while the first acquire request is held, and releases the lock.
fn take_with_the_original_held(rig: &Rig, lock: &Lock) -> (RuleHandle, Request, Request) {
    let acquire = rig.script("acquire");
    let mark = rig.proxy.mark();
    let rule = rig.proxy.rule(acquire.clone(), Then::HoldRequest);
    let guard = lock.try_lock_for(SOON).unwrap().expect("no other client wants the lock");
    let original = rule.wait_hit(SOON);
    rig.assert_fenced_before_repeat(mark, &acquire);
    rig.assert_held_by(NAME, guard.owner(), 1);
    guard.unlock().unwrap();
    rig.assert_no_keys();
    let fence = rig.fence_of(&original).expect("the request was fenced");
    (rule, original, fence)
}

#[test]
fn an_unanswered_fence_never_causes_an_unsent_release() {
    let rig = Rig::start();
    // A loss that is told at once leaves nothing to release.
    rig.server.run(&["ACL", "SETUSER", "default", "-client|tracking"]);
    let client = rig.impatient().connect().unwrap();
    let lock = client.get_lock(NAME);
    let outer = lock.lock().unwrap();
    let lost = rig.proxy.rule(rig.script("reenter"), Then::Mute(Direction::Replies));
    let deaf = rig.proxy.rule(fences().always(), Then::SwallowRequest);
    assert_eq!(lock.try_lock().unwrap_err().kind(), ErrorKind::Unknown, "re-entered or not");
    assert_eq!(lost.hits(), 1);
    rig.server.run(&["DEL", NAME]);
    // The background fences, too.
    let fence = rig.proxy.rule(fences(), Then::CutReplyAfter(0));
    deaf.remove();
    let mark = rig.proxy.mark();
    // The release is sent once and finds nothing: a loss, and nothing is in doubt.
    assert_eq!(outer.unlock().unwrap_err().kind(), ErrorKind::Lost(Loss::Gone));
    assert_eq!(fence.hits(), 1);
    assert_eq!(rig.proxy.fitting_since(mark, &rig.release(false)).len(), 1);
}

#[test]
fn a_copy_at_a_former_master_is_cleared_when_it_is_one_again() {
    let (rig, other) = (Rig::start(), RedisServer::start());
    let lock = rig.impatient().connect().unwrap().get_lock(NAME);
    let held = rig.proxy.rule(rig.script("acquire"), Then::HoldRequest);
    std::thread::scope(|scope| {
        let taking = scope.spawn(|| lock.try_lock_for(SOON).map(|guard| guard.map(|guard| guard.unlock())));
        let original = held.wait_hit(SOON);
        // The host name leads to another server now, and to the first server again later.
        rig.proxy.retarget(other.address());
        taking.join().unwrap().unwrap().expect("free at the other server").unwrap();
        rig.proxy.retarget(rig.server.address());
        rig.proxy.cut(Scope::All);
        let copy = rig.proxy.send_copy_anew(&original);
        let granted = Fate::Answered(b"*1\r\n:1\r\n".to_vec());
        assert_eq!(rig.proxy.wait_fate(&copy, SOON), granted, "the copy has locked it for 30 s");
    });
    rig.eventually_no_keys(Duration::from_secs(5));
}

#[test]
fn reading_that_was_kept_goes_on_when_writing_ends_in_doubt() {
    let (rig, lock) = Rig::start().and(|rig| rig.impatient().connect().unwrap().get_read_write_lock(NAME));
    let other = rig.direct().get_read_write_lock(NAME);
    let writing = lock.write().lock().unwrap();
    lock.read().with_lease(Duration::from_secs(60)).lock().unwrap().keep_until_expiry();
    let deaf = rig.proxy.rule(fences().always(), Then::SwallowRequest);
    let mute = rig.proxy.rule(When::script().always(), Then::SwallowRequest);
    writing.unlock().unwrap_err();
    deaf.remove();
    mute.remove();
    // The guard is gone; readers are admitted as soon as the release reaches Redis.
    let reading = other.read().try_lock_for(Duration::from_secs(8)).unwrap().expect("writing has ended");
    reading.unlock().unwrap();
    assert!(other.write().try_lock().unwrap().is_none(), "the kept read hold remains");
}

/// The background is writing an inner release that failed at first, and does not know of the next release.
#[test]
fn an_inner_release_beside_the_background_is_written() {
    let (rig, lock) = Rig::start().and(|rig| rig.builder().drop_timeout(ms(200)).connect().unwrap().get_lock(NAME));
    let outer = lock.lock().unwrap();
    let (second, third) = (lock.lock().unwrap(), lock.lock().unwrap());
    rig.proxy.mute(Scope::All, Direction::Both);
    drop(third);
    thread::sleep(ms(700)); // after half a second the background sends its request, and waits for the answer
    drop(second);
    rig.proxy.unmute();
    let count = || rig.server.query::<String>(&["HGET", NAME, outer.owner()]);
    eventually(SOON, "both are written", || count() == "1");
    outer.unlock().unwrap();
}
