//! Tests of standing back: examples, and processes of several sorts at one lock in virtual time.
#![cfg(test)]

use super::model::{Scene, Sort, at, name, number};
use super::*;

/// Returns the end of the pause of a thread in microseconds, if there is a pause.
fn pause(turns: &mut Turns, thread: usize, now: u64) -> Option<u64> {
    let pause = turns.with(&name(), |turn| turn.pause(number(thread), at(now))).flatten()?;
    Some(u64::try_from(at(0).until(pause.until).as_micros()).unwrap())
}

/// A hold of `millis` from `from` on; `others` receive the message of its release.
fn hold(turns: &mut Turns, thread: usize, from: u64, millis: u64, others: usize) -> u64 {
    let end = from + millis * 1_000;
    turns.with(&name(), |turn| turn.granted(number(thread), at(from)));
    turns.released(&name(), Rivals::Listen(others), at(end));
    end
}

/// Records that a check which took no time found this owner.
fn looked(turn: &mut Turn, owner: &str, now: u64) {
    turn.looked(Some(owner), at(now), at(now));
}

/// A lock with a listener, before the first turn of this process.
fn contended() -> Turns {
    let mut turns = Turns::default();
    hold(&mut turns, 0, 0, 10, 1);
    turns
}

#[test]
fn an_uncontended_lock_is_asked_for_at_once() {
    let mut turns = Turns::default();
    let end = hold(&mut turns, 0, 0, 10, 0);
    assert_eq!(pause(&mut turns, 0, end), None);
    assert!(turns.len() == 0);
}

#[test]
fn a_process_stands_back_when_each_thread_had_a_grant() {
    let mut turns = contended();
    let mut now = 20_000;
    (0..4).for_each(|thread| _ = turns.with(&name(), |turn| turn.wanted(number(thread), at(now))));
    for thread in 0..4 {
        assert_eq!(pause(&mut turns, thread, now), None);
        now = hold(&mut turns, thread, now, 10, 1);
        turns.with(&name(), |turn| turn.wanted(number(thread), at(now)));
    }
    assert!(pause(&mut turns, 0, now).is_some());
    assert_eq!(pause(&mut turns, 0, now + 8_000), None, "the others leave it free: they do not want it");
}

#[test]
fn threads_that_come_during_a_turn_do_not_prolong_it() {
    let mut turns = contended();
    let mut now = 20_000;
    for thread in 1..3 {
        turns.with(&name(), |turn| turn.wanted(number(thread), at(now)));
    }
    for thread in 1..3 {
        assert_eq!(pause(&mut turns, thread, now), None);
        now = hold(&mut turns, thread, now, 10, 1);
        turns.with(&name(), |turn| turn.wanted(number(thread + 10), at(now)));
        turns.with(&name(), |turn| turn.wanted(number(thread + 20), at(now)));
    }
    assert!(pause(&mut turns, 11, now).is_some());
}

#[test]
fn the_others_have_as_many_grants_as_they_have_threads() {
    let mut turns = contended();
    let (mut now, mut ours, mut theirs) = (20_000, 0, 0);
    while ours + theirs < 300 {
        if pause(&mut turns, 0, now).is_none() {
            now = hold(&mut turns, 0, now, 10, 1);
            ours += 1;
        } else {
            // Two threads of another process hold the lock in rotation.
            turns.with(&name(), |turn| looked(turn, &format!("b:{}.{now}", theirs % 2), now));
            now += 10_000;
            turns.with(&name(), |turn| turn.heard(at(now)));
            theirs += 1;
        }
    }
    assert!((98..=105).contains(&ours), "{ours} of 300 grants");
}

#[test]
fn releases_of_threads_that_do_not_wait_prolong_no_pause() {
    let mut turns = contended();
    pause(&mut turns, 0, 20_000);
    let mut now = hold(&mut turns, 0, 20_000, 10, 1);
    let end = now + 8_000;
    while now < end {
        assert!(pause(&mut turns, 0, now).is_some_and(|until| until <= end));
        now = hold(&mut turns, 1, now, 1, 1);
    }
    assert_eq!(pause(&mut turns, 0, now), None);
}

#[test]
fn a_release_beside_free_permits_begins_no_pause() {
    let mut turns = Turns::default();
    turns.with(&name(), |turn| turn.wanted(number(0), at(0)));
    turns.with(&name(), |turn| turn.granted(number(0), at(0)));
    turns.released(&name(), Rivals::Unknown, at(10_000));
    assert!(turns.len() == 0);
    assert_eq!(pause(&mut turns, 0, 10_000), None);
}

#[test]
fn short_holds_are_given_away_in_batches() {
    let mut turns = contended();
    turns.with(&name(), |turn| turn.heard(at(10_000)));
    let (mut now, mut grants) = (20_000, 0);
    while pause(&mut turns, 0, now).is_none() {
        turns.with(&name(), |turn| turn.granted(number(0), at(now)));
        turns.released(&name(), Rivals::Listen(1), at(now + 100));
        now += 200;
        grants += 1;
    }
    assert!((9..=11).contains(&grants), "{grants} holds of 100 us fill a turn of 2 ms");
}

#[test]
fn a_listener_that_wants_nothing_costs_little() {
    for round_trip in [0, 30_000, 300_000] {
        let mut turns = contended();
        let (mut now, mut paused) = (20_000, 0);
        for _ in 0..100_000 {
            let before = now;
            match turns.with(&name(), |turn| turn.pause(number(0), at(now))).flatten() {
                Some(Pause { looks: true, .. }) => {
                    now += round_trip;
                    turns.with(&name(), |turn| turn.looked(None, at(before), at(now)));
                    paused += now - before;
                }
                Some(Pause { until, .. }) => {
                    now = u64::try_from(at(0).until(until).as_micros()).unwrap();
                    assert!(now - before <= 8_000, "a pause is bounded");
                    paused += now - before;
                }
                None => {
                    now += round_trip;
                    turns.with(&name(), |turn| turn.granted(number(0), at(now)));
                    now += 100 + round_trip;
                    turns.released(&name(), Rivals::Listen(1), at(now));
                }
            }
        }
        assert!(paused * 100 < now * 15, "link of {round_trip} us: paused for {paused} of {now} us");
    }
}

#[test]
fn a_lock_without_messages_costs_a_lone_process_little() {
    let mut turns = Turns::default();
    let (mut now, mut paused) = (20_000, 0);
    for _ in 0..10_000 {
        if let Some(end) = pause(&mut turns, 0, now) {
            paused += end - now;
            now = end;
        }
        turns.with(&name(), |turn| turn.granted(number(0), at(now)));
        turns.released(&name(), Rivals::MayPoll, at(now + 100));
        now += 100;
    }
    assert!((1..2).contains(&(paused * 100 / now)), "paused for {paused} of {now} us");
}

#[test]
fn a_poller_that_was_seen_has_a_pause_of_its_own() {
    let mut turns = contended();
    assert_eq!(pause(&mut turns, 0, 20_000), None);
    let now = hold(&mut turns, 0, 20_000, 10, 1);
    turns.with(&name(), |turn| looked(turn, "b:1", now));
    // The other process does not listen any more, but its thread was seen.
    pause(&mut turns, 0, now + 8_000);
    let now = hold(&mut turns, 0, now + 8_000, 10, 0);
    assert!(pause(&mut turns, 0, now).is_some());
    assert_eq!(pause(&mut turns, 0, now + 1_000), None);
    // The observations are old.
    let now = hold(&mut turns, 0, now + 11_000_000, 10, 0);
    assert_eq!(pause(&mut turns, 0, now), None);
    assert!(turns.len() == 0);
}

#[test]
fn a_failed_look_is_not_repeated_soon() {
    let mut turns = contended();
    pause(&mut turns, 0, 20_000);
    let now = hold(&mut turns, 0, 20_000, 10, 1);
    let looks = |turns: &mut Turns, now| {
        turns.with(&name(), |turn| turn.pause(number(0), at(now))).flatten().is_some_and(|pause| pause.looks)
    };
    assert!(!looks(&mut turns, now) && looks(&mut turns, now + 1_000), "the next holder appears after a millisecond");
    turns.with(&name(), |turn| turn.cannot_look(at(now + 1_000)));
    assert!(!looks(&mut turns, now + 2_500));
}

#[test]
fn owners_of_one_thread_are_one_thread() {
    assert_eq!(thread_of("b:1.7"), thread_of("b:1.8"));
    assert_eq!(thread_of("b:1"), thread_of("b:1.8"));
    assert_ne!(thread_of("b:1"), thread_of("b:2"));
    assert_ne!(thread_of("a:1"), thread_of("b:1"));
}

#[test]
fn turns_of_locks_that_are_not_used_any_more_are_forgotten() {
    let mut turns = Turns::default();
    for place in 0..20_000_u64 {
        let name = LockName::new(&format!("n:{place}")).unwrap();
        turns.released(&name, Rivals::Listen(1), at(place * 100_000));
    }
    assert!(turns.len() <= 2 * FEW_TURNS);
}

const HOLDS: [u64; 4] = [0, 1_000, 10_000, 100_000];
const THREADS: [(usize, usize); 4] = [(1, 1), (4, 4), (4, 1), (1, 4)];
const GRANTS: u64 = 600;

/// Other processes, and the least share that each of the two gets.
const OTHERS: [(Sort, f64); 3] = [
    (Sort::Lockson, 0.8),
    (Sort::Redisson, 0.8),
    // Redisson passes over its own threads, so some of them are seen too rarely.
    (Sort::SlowRedisson, 0.7),
];

#[test]
fn each_process_gets_its_part_by_threads() {
    for (other, least) in OTHERS {
        for hold in HOLDS {
            for (ours, theirs) in THREADS {
                let mut scene = Scene::new(hold, &[(Sort::Lockson, ours), (other, theirs)]);
                let shares = scene.shares(GRANTS);
                let what = format!("{other:?}, hold {hold} us, {ours}+{theirs} threads");
                assert!(shares.iter().all(|share| *share >= least), "{what}: {shares:.2?}");
                let idle = scene.idle / GRANTS;
                assert!(idle < 2_500, "{what}: the lock is free for {idle} us after each hold");
                let ours = scene.longest_wait_of(0);
                assert!(ours < 100_000 + 30 * (hold + 2_500), "{what}: a thread waits for {ours} us");
            }
        }
    }
}

/// The owners of permits cannot be seen, so a peer is assumed to have as many threads as this process.
#[test]
fn permits_are_shared_with_a_peer() {
    for (permits, ours, theirs) in [(1, 1, 1), (1, 4, 4), (2, 4, 4), (4, 4, 4), (1, 1, 4), (1, 4, 1)] {
        for (other, least) in OTHERS {
            for hold in HOLDS {
                let mut scene = Scene::of_permits(permits, hold, &[(Sort::Lockson, ours), (other, theirs)]);
                let shares = scene.shares(GRANTS);
                let what = format!("{permits} permits, {other:?}, hold {hold} us, {ours}+{theirs} threads");
                let least = if ours == theirs { least } else { 0.55 };
                assert!(shares.iter().all(|share| *share >= least), "{what}: {shares:.2?}");
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
        // Processes that owe each other grants may all stand back at once, for a moment.
        assert!(
            idle <= without + 100 + hold / 12,
            "hold {hold} us: free for {idle} us after each hold, else {without} us"
        );
        assert!(scene.longest_wait() < 5 * 8 * (hold + 2_500), "hold {hold} us: {} us", scene.longest_wait());
    }
}

proptest::proptest! {
    /// For any events in any order: no thread waits for more than 8 ms after the last release.
    #[test]
    fn a_pause_ends_soon_after_the_last_release(
        steps in proptest::collection::vec((0_u8..7, 0_u64..20_000, 0_usize..4, 0_usize..6), 1..300)
    ) {
        let mut turns = Turns::default();
        let (mut now, mut last) = (0, 0);
        for (step, passed, others, thread) in steps {
            now += passed;
            match step {
                0 | 1 => _ = turns.with(&name(), |turn| turn.granted(number(thread), at(now))),
                2 | 3 => {
                    let rivals = if step == 2 { Rivals::Listen(others) } else { Rivals::MayPoll };
                    turns.released(&name(), rivals, at(now));
                    last = now;
                }
                4 => {
                    turns.with(&name(), |turn| turn.heard(at(now)));
                    last = now;
                }
                5 => _ = turns.with(&name(), |turn| looked(turn, &format!("b:{thread}.{now}"), now)),
                _ => _ = turns.with(&name(), |turn| turn.looked(None, at(now), at(now))),
            }
            let until = pause(&mut turns, thread, now);
            proptest::prop_assert!(until.is_none_or(|until| now < until && until <= last + 8_000));
        }
    }
}

/// A lock goes from thread to thread until each that waited had it, and for 2 ms at least; then others get a message.
#[test]
fn a_chain_of_holds_ends() {
    let begin = Instant::from_millis(1_000_000);
    let holds = |waiting, each: Duration| {
        let (mut chain, mut now) = (None, begin);
        let next = std::iter::from_fn(|| {
            chain = Some(Chain::next(chain, waiting, now)?);
            now = now.after(each);
            chain
        });
        next.count()
    };
    assert_eq!([1, 3, 8].map(|waiting| holds(waiting, Duration::from_millis(10))), [1, 3, 8]);
    assert_eq!([1, 3, 8].map(|waiting| holds(waiting, Duration::from_micros(500))), [4, 4, 8]);
    assert_eq!(holds(1, Duration::from_millis(2)), 1, "two threads give way, too");
    assert_eq!([50, 100, 1_000].map(|millis| holds(20, Duration::from_millis(millis))), [2, 1, 1], "long holds");
}
