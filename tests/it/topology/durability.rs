//! Locks that wait for replicas: what counts as taken, and what a master that is cut off can promise.

mod cluster;
mod connections;
mod kinds;
mod refused;
mod renewed;
mod scene;

use lockson::Durability;

use self::scene::{Copied, WITHIN, one};

use crate::support::prelude::*;

#[test]
fn a_lock_without_its_replica_is_given_back() {
    let copied = Copied::start(2);
    let client = Client::connect(&copied.master.url()).unwrap();
    let lock = client.get_lock(fresh("alone"));
    let both = lock.with_durability(Durability::replicas(2).within(SOON));
    both.lock().unwrap().unlock().unwrap();
    copied.replicas[1].pause();
    let lock = lock.with_durability(Durability::replicas(2).within(WITHIN));
    let takes: [fn(&Lock) -> lockson::Result<()>; 3] =
        [|lock| lock.try_lock().map(drop), |lock| lock.try_lock_for(SOON).map(drop), |lock| lock.lock().map(drop)];
    for take in takes {
        let (took, outcome) = timed(|| take(&lock));
        let error = outcome.unwrap_err();
        assert_eq!(copied.master.keys(), Vec::<String>::new(), "it is given back before the call ends");
        assert_eq!(error.kind(), ErrorKind::NotDurable, "{error}");
        assert_eq!(error.lock_name(), Some(lock.name()));
        for part in ["1 of 2 replicas", "given back", "INFO replication"] {
            assert!(error.to_string().contains(part), "{part}: {error}");
        }
        assert!(
            (WITHIN..WITHIN + ms(500) + SCHEDULING).contains(&took),
            "an error is no reason to ask again: {took:?}"
        );
    }
    assert!(client.held().is_empty());
    copied.replicas[1].resume();
    both.lock().unwrap().unlock().unwrap();
}

#[test]
fn a_busy_lock_waits_for_no_replica() {
    let copied = Copied::start(1);
    let (client, other) =
        (Client::connect(&copied.master.url()).unwrap(), Client::connect(&copied.master.url()).unwrap());
    let lock = client.get_lock(fresh("busy"));
    let _held = other.get_lock(lock.name()).lock().unwrap();
    copied.replicas[0].pause();
    let patient = lock.with_durability(one().within(Duration::from_secs(10)));
    let (took, outcome) = timed(|| patient.try_lock().unwrap());
    assert!(outcome.is_none() && took < SCHEDULING, "{took:?}");
    let (took, outcome) = timed(|| patient.try_lock_for(ms(300)).unwrap());
    assert!(outcome.is_none() && took < ms(500) + SCHEDULING, "{took:?}");
}

#[test]
fn a_failed_reentry_leaves_the_outer_section_as_it_was() {
    let copied = Copied::start(1);
    let client = brisk(&copied.master).connect().unwrap();
    let lock = client.get_lock(fresh("outer"));
    let guard = lock.with_lease(SOON).lock().unwrap();
    copied.replicas[0].pause();
    let inner = lock.with_lease(SOON * 2).with_durability(one());
    assert_eq!(kind_of(inner.try_lock()), ErrorKind::NotDurable);
    assert!(guard.is_held() && guard.remaining() <= SOON, "nothing was promised to the inner section");
    assert_eq!(lock.hold_count(), 1);
    lockson_harness::eventually(SOON, "the count is written back", || {
        fields(&copied.master, lock.name()) == [(guard.owner().to_owned(), "1".to_owned())]
    });
    copied.replicas[0].resume();
    inner.try_lock().unwrap().expect("this thread holds it").unlock().unwrap();
    guard.unlock().unwrap();
}

#[test]
fn an_extension_counts_when_its_replica_has_it() {
    let copied = Copied::start(1);
    let client = Client::connect(&copied.master.url()).unwrap();
    let patient = one().within(ms(3_000));
    let guard = client.get_lock(fresh("extended")).with_lease(SOON).with_durability(patient).lock().unwrap();
    guard.extend(SOON * 2).unwrap();
    assert!(guard.remaining() > SOON);
    copied.replicas[0].pause();
    let error = guard.extend(SOON * 10).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotDurable, "{error}");
    assert!(guard.is_held() && guard.remaining() <= SOON * 2, "{error}");
    guard.unlock().unwrap();
    assert_eq!(copied.master.keys(), Vec::<String>::new(), "a release waits for nobody");
}

/// A renewal that no replica has prolongs the key and not the hold.
#[test]
fn a_close_gives_back_what_a_lost_hold_left() {
    let copied = Copied::start(1);
    let client = Client::connect(&copied.master.url()).unwrap();
    let guard = client.get_lock(fresh("left")).with_lease(ms(3_000)).with_durability(one()).lock().unwrap();
    copied.replicas[0].pause();
    assert_eq!(kind_of(guard.extend(SOON * 10)), ErrorKind::NotDurable);
    assert_eq!(guard.wait_lost(SOON), Some(Loss::Expired));
    client.close();
    assert_eq!(copied.master.keys(), Vec::<String>::new());
}

#[test]
fn settings_without_meaning_are_refused_before_any_request() {
    let nothing = Durability::replicas(0);
    let build = |durability| Client::builder("redis://127.0.0.1:1").durability(durability).connect_lazily();
    assert_eq!(kind_of(build(nothing)), ErrorKind::Config);
    assert_eq!(kind_of(build(one().within(Duration::from_secs(20)))), ErrorKind::Config);
    let client = build(one()).unwrap();
    let lock = client.get_lock("never");
    assert_eq!(kind_of(lock.with_durability(nothing).try_lock()), ErrorKind::BadInput);
    assert_eq!(kind_of(lock.owned().with_durability(nothing).try_lock()), ErrorKind::BadInput);
    let slow = one().within(ms(600));
    assert_eq!(kind_of(lock.with_lease(ms(1_000)).with_durability(slow).try_lock()), ErrorKind::BadInput);
    assert_eq!(kind_of(Lock::multi([lock.with_durability(nothing)]).try_lock()), ErrorKind::BadInput);
    assert_eq!(kind_of(Lock::multi([lock.clone()]).with_durability(nothing).try_lock()), ErrorKind::BadInput);
    // The setting of the client fits itself to a short lease.
    assert_eq!(kind_of(lock.with_lease(ms(1_000)).try_lock()), ErrorKind::Connection);
}
