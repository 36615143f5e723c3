//! Nesting and renewal never shorten a lease, and an ended inner lease does not outlive its guard.

use crate::support::prelude::*;

const HOUR: i64 = 3_600_000;

#[track_caller]
fn assert_ttl(name: &str, most: i64) {
    let left = ttl_ms(RedisServer::shared(), name);
    assert!(left <= most && left > most - 2_000, "{left} ms, not {most}");
}

#[test]
fn an_inner_lease_only_raises_and_ends_with_its_guard() {
    let shorter_inside = (Some(20_000), Some(500), 20_000, 20_000);
    let longer_inside = (None, Some(3_600_000), HOUR, 30_000);
    let watched_inside = (Some(6_000), None, 30_000, 6_000);
    for (outer, inner, together, alone) in [shorter_inside, longer_inside, watched_inside] {
        let lock = client().get_lock(fresh("lease"));
        let take = |lease: Option<u64>| lease.map_or(lock.clone(), |lease| lock.with_lease(ms(lease))).lock().unwrap();
        let (outer, inner) = (take(outer), take(inner));
        let is_left = |guard: &Guard, most: i64| {
            let left = i64::try_from(guard.remaining().as_millis()).unwrap();
            assert!(guard.is_held() && left <= most && left > most * 99 / 100 - 2_000, "{left} ms, not {most}");
        };
        assert_ttl(lock.name(), together);
        is_left(&outer, together);
        is_left(&inner, together);
        inner.unlock().unwrap();
        assert_ttl(lock.name(), alone);
        is_left(&outer, alone);
    }
}

#[test]
fn an_inner_lease_outlives_the_outer_guard_that_goes_first() {
    let client = brisk_client();
    let _renewed = client.get_lock(fresh("lease")).lock().unwrap();
    let lock = client.get_lock(fresh("lease"));
    let outer = lock.lock().unwrap();
    let started = Instant::now();
    let inner = lock.with_lease(ms(600)).lock().unwrap();
    drop(outer);
    assert!(inner.is_held());
    assert!(inner.remaining() <= ms(600), "the rest is the lease, without renewal");
    assert!(ttl_ms(RedisServer::shared(), lock.name()) <= 600);
    assert_eq!(inner.wait_lost(SOON), Some(Loss::Expired));
    let after = started.elapsed();
    assert!(after <= ms(600) + GRACE + SCHEDULING, "{after:?}");
}

#[test]
fn no_renewal_lowers_a_longer_lease() {
    let client = brisk_client();
    let lock = client.get_lock(fresh("lease"));
    let _outer = lock.lock().unwrap();
    let _inner = lock.with_lease(ms(3_600_000)).lock().unwrap();
    let started = Instant::now();
    while started.elapsed() < TICK * 5 {
        assert_ttl(lock.name(), HOUR);
    }
}

#[test]
fn an_extension_by_hand_outlives_an_inner_section() {
    let lock = client().get_lock(fresh("lease"));
    let outer = lock.lock().unwrap();
    outer.extend(ms(100_000)).unwrap();
    drop(lock.lock().unwrap());
    assert_ttl(lock.name(), 100_000);
    assert!(outer.remaining() > ms(95_000));
    outer.unlock().unwrap();
    assert_eq!(ttl_ms(RedisServer::shared(), lock.name()), -2);
}

#[test]
fn the_lease_of_one_take_is_not_the_next_one_s() {
    let client = client();
    let lock = client.get_lock(fresh("lease"));
    lock.with_lease(ms(3_600_000)).lock().unwrap().unlock().unwrap();
    let guard = lock.lock().unwrap();
    assert_ttl(lock.name(), 30_000);
    // A busy try with a lease, through the holder's own handle, does not raise the time to live either.
    let hourly = lock.with_lease(ms(3_600_000));
    elsewhere(|| assert!(hourly.try_lock().unwrap().is_none()));
    drop(lock.lock().unwrap());
    assert_ttl(lock.name(), 30_000);
    guard.unlock().unwrap();
}

#[test]
fn wait_lost_follows_a_lowered_deadline() {
    // The next renewal would come after ten seconds, the old deadline after thirty.
    let lock = client().get_lock(fresh("lease"));
    let outer = lock.lock().unwrap();
    let inner = lock.with_lease(ms(500)).lock().unwrap();
    let (told, heard) = crossbeam_channel::unbounded();
    inner.on_lost(move |loss| told.send(*loss).unwrap());
    let hold = inner.hold().clone();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| timed(|| hold.wait_lost(SOON)));
        drop(outer);
        let (took, loss) = joined(waiter);
        assert_eq!(loss, Some(Loss::Expired));
        assert!(took <= ms(500) + GRACE + SCHEDULING, "the wait ended after {took:?}");
    });
    let late = Instant::now();
    assert_eq!(heard.recv_timeout(SOON), Ok(Loss::Expired));
    assert!(late.elapsed() <= SCHEDULING, "the callback came {:?} later", late.elapsed());
}

#[test]
fn a_callback_follows_a_deadline_that_was_lowered() {
    let lock = client().get_lock(fresh("lease"));
    let outer = lock.lock().unwrap();
    let inner = lock.with_lease(ms(500)).lock().unwrap();
    let (told, heard) = crossbeam_channel::unbounded();
    inner.on_lost(move |loss| told.send(*loss).unwrap());
    drop(outer);
    // No call asks about the hold meanwhile.
    assert_eq!(heard.recv_timeout(ms(500) + GRACE + SCHEDULING * 2), Ok(Loss::Expired));
}

#[test]
fn a_watched_hold_survives_beside_busy_short_leases() {
    let client = brisk_client();
    let lock = client.get_lock(fresh("lease"));
    let guard = lock.lock().unwrap();
    let started = Instant::now();
    thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let busy = client.get_lock(fresh("busy")).with_lease(ms(20));
                while started.elapsed() < TTL * 5 / 4 {
                    drop(busy.lock().unwrap());
                    busy.lock().unwrap().keep_until_expiry();
                    eventually(SOON, "the lease ran out", || busy.try_lock().unwrap().is_some());
                }
            });
        }
    });
    assert!(guard.is_held());
    guard.unlock().unwrap();
}

#[test]
fn a_hold_lives_for_30_s_and_is_renewed_every_10_s() {
    let (server, lock) = (RedisServer::shared(), client().get_lock(fresh("default")));
    let guard = lock.lock().unwrap();
    let mut least = ttl_ms(server, lock.name());
    assert!((29_000..=30_000).contains(&least), "{least}");
    eventually(ms(15_000), "the hold is renewed", || {
        let left = ttl_ms(server, lock.name());
        let is_renewed = left > least + 1_000;
        least = least.min(left);
        is_renewed
    });
    assert!((18_000..=20_500).contains(&least), "renewed with {least} ms left");
    guard.unlock().unwrap();
}
