//! Tests of standing back: examples, and processes of several sorts at one lock in virtual time.
#![cfg(test)]

use super::model::{Scene, Sort, at, name};
use super::*;

/// Returns the end of a pause in microseconds, if there is a pause.
fn pause(stand_backs: &mut Accounts, now: u64) -> Option<u64> {
    let pause = stand_backs.pause(&name(), at(now))?;
    Some(u64::try_from(at(0).until(pause.until).as_micros()).unwrap())
}

/// A hold of `millis` from `from` on; `others` receive the message of its release.
fn hold(stand_backs: &mut Accounts, from: u64, millis: u64, others: usize, threads: usize) -> u64 {
    let end = from + millis * 1_000;
    stand_backs.granted(&name(), at(from));
    stand_backs.released(&name(), Some(others), || threads, at(end));
    end
}

#[test]
fn an_uncontended_lock_is_asked_for_at_once() {
    let mut stand_backs = Accounts::default();
    let end = hold(&mut stand_backs, 0, 10, 0, 4);
    assert_eq!(pause(&mut stand_backs, end), None);
    assert!(stand_backs.len() == 0);
}

#[test]
fn a_process_stands_back_when_each_of_its_threads_had_a_turn() {
    let mut stand_backs = Accounts::default();
    let mut now = 0;
    for _ in 0..4 {
        assert_eq!(pause(&mut stand_backs, now), None);
        now = hold(&mut stand_backs, now, 10, 1, 4);
    }
    assert!(pause(&mut stand_backs, now).is_some());
    assert_eq!(pause(&mut stand_backs, now + 4_000), None, "the others leave it free: they do not want it");
}

#[test]
fn the_others_have_as_many_stand_backs_as_they_have_threads() {
    let mut stand_backs = Accounts::default();
    let (mut now, mut ours, mut theirs) = (0, 0, 0);
    while ours + theirs < 300 {
        if pause(&mut stand_backs, now).is_none() {
            now = hold(&mut stand_backs, now, 10, 1, 1);
            ours += 1;
        } else {
            // Two threads of another process hold the lock in rotation.
            stand_backs.looked(&name(), Some(&format!("b:{}.{now}", theirs % 2)), at(now));
            now += 10_000;
            stand_backs.heard(&name(), at(now));
            theirs += 1;
        }
    }
    assert!((98..=105).contains(&ours), "{ours} of 300 grants");
}

#[test]
fn short_holds_are_given_away_in_batches() {
    let mut stand_backs = Accounts::default();
    let mut now = 0;
    let mut grants = 0;
    while pause(&mut stand_backs, now).is_none() {
        stand_backs.granted(&name(), at(now));
        stand_backs.released(&name(), Some(1), || 1, at(now + 100));
        now += 200;
        grants += 1;
    }
    assert!((19..=21).contains(&grants), "{grants} holds of 100 us fill a turn of 2 ms");
}

#[test]
fn a_listener_that_wants_nothing_costs_less_and_less() {
    let mut stand_backs = Accounts::default();
    let (mut now, mut paused) = (0, 0);
    for _ in 0..100_000 {
        if let Some(end) = pause(&mut stand_backs, now) {
            assert!(end - now <= 9_000, "a pause is bounded");
            paused += end - now;
            now = end;
        } else {
            stand_backs.granted(&name(), at(now));
            stand_backs.released(&name(), Some(1), || 1, at(now + 100));
            now += 100;
        }
    }
    assert!(paused * 100 < now * 15, "paused for {paused} of {now} us");
}

#[test]
fn a_poller_that_was_seen_has_a_pause_of_its_own() {
    let mut stand_backs = Accounts::default();
    let now = hold(&mut stand_backs, 0, 10, 1, 1);
    stand_backs.looked(&name(), Some("b:1"), at(now));
    // The other process does not listen any more, but its thread was seen.
    let now = hold(&mut stand_backs, now, 10, 0, 1);
    assert!(pause(&mut stand_backs, now).is_some());
    assert_eq!(pause(&mut stand_backs, now + 1_000), None);
    // The observations are old.
    let now = hold(&mut stand_backs, now + 11_000_000, 10, 0, 1);
    assert_eq!(pause(&mut stand_backs, now), None);
    assert!(stand_backs.len() == 0);
}

#[test]
fn a_failed_look_is_not_repeated_soon() {
    let mut stand_backs = Accounts::default();
    let mut now = hold(&mut stand_backs, 0, 10, 1, 1);
    now = hold(&mut stand_backs, now, 10, 1, 1);
    let looks = |accounts: &mut Accounts, now: u64| accounts.pause(&name(), at(now)).is_some_and(|pause| pause.looks);
    assert!(
        !looks(&mut stand_backs, now) && looks(&mut stand_backs, now + 1_000),
        "a millisecond later the next holder is there"
    );
    stand_backs.cannot_look(&name(), at(now + 1_000));
    assert!(!looks(&mut stand_backs, now + 2_500));
}

#[test]
fn owners_of_one_thread_are_one_thread() {
    assert_eq!(thread_of("b:1.7"), thread_of("b:1.8"));
    assert_eq!(thread_of("b:1"), thread_of("b:1.8"));
    assert_ne!(thread_of("b:1"), thread_of("b:2"));
    assert_ne!(thread_of("a:1"), thread_of("b:1"));
}

#[test]
fn accounts_of_locks_that_are_not_used_any_more_are_closed() {
    let mut stand_backs = Accounts::default();
    for number in 0..20_000_u64 {
        let name = LockName::new(&format!("n:{number}")).unwrap();
        stand_backs.released(&name, Some(1), || 1, at(number * 100_000));
    }
    assert!(stand_backs.len() <= 2 * FEW_ACCOUNTS);
}

const HOLDS: [u64; 4] = [0, 1_000, 10_000, 100_000];
const GRANTS: u64 = 1_500;

#[test]
fn each_process_gets_its_part_by_threads() {
    for other in [Sort::Lockson, Sort::Redisson] {
        for hold in HOLDS {
            for (ours, theirs) in [(1, 1), (4, 4), (4, 1), (1, 4)] {
                let mut scene = Scene::new(hold, &[(Sort::Lockson, ours), (other, theirs)]);
                let shares = scene.shares(GRANTS);
                let what = format!("{other:?}, hold {hold} us, {ours}+{theirs} threads");
                assert!(shares.iter().all(|share| *share >= 0.8), "{what}: {shares:.2?}");
                let idle = scene.idle / GRANTS;
                assert!(idle < 1_500, "{what}: the lock is free for {idle} us after each hold");
            }
        }
    }
}

#[test]
fn without_standing_back_a_peer_starves() {
    let mut scene = Scene::new(10_000, &[(Sort::Greedy, 1), (Sort::Redisson, 1)]);
    let shares = scene.shares(GRANTS);
    assert!(shares[1] < 0.1, "{shares:.2?}");
    assert!(scene.longest_wait() > 1_000_000);
}

#[test]
fn several_processes_of_this_crate_lose_no_time() {
    for hold in HOLDS {
        let mut scene = Scene::new(hold, &[(Sort::Lockson, 2); 4]);
        let shares = scene.shares(GRANTS);
        assert!(shares.iter().all(|share| *share >= 0.8), "hold {hold} us: {shares:.2?}");
        let mut greedy = Scene::new(hold, &[(Sort::Greedy, 2); 4]);
        greedy.shares(GRANTS);
        let (idle, without) = (scene.idle / GRANTS, greedy.idle / GRANTS);
        assert!(idle <= without + 100, "hold {hold} us: free for {idle} us after each hold, else {without} us");
        assert!(scene.longest_wait() < 5 * 8 * (hold + 2_500), "hold {hold} us: {} us", scene.longest_wait());
    }
}

proptest::proptest! {
    /// For any events in any order: no thread waits for more than 9 ms after the last release.
    #[test]
    fn a_pause_ends_soon_after_the_last_release(
        steps in proptest::collection::vec((0_u8..6, 0_u64..20_000, 0_usize..4, 1_usize..6), 1..300)
    ) {
        let mut stand_backs = Accounts::default();
        let (mut now, mut last) = (0, 0);
        for (step, passed, others, threads) in steps {
            now += passed;
            match step {
                0 | 1 => stand_backs.granted(&name(), at(now)),
                2 => {
                    stand_backs.released(&name(), Some(others), || threads, at(now));
                    last = now;
                }
                3 => {
                    stand_backs.heard(&name(), at(now));
                    last = now;
                }
                4 => stand_backs.looked(&name(), Some(&format!("b:{threads}.{now}")), at(now)),
                _ => stand_backs.looked(&name(), None, at(now)),
            }
            let until = pause(&mut stand_backs, now);
            proptest::prop_assert!(until.is_none_or(|until| now < until && until <= last + 9_000));
        }
    }
}
