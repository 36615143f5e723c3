//! The hold on several locks: re-entry, loss, release, extension, leases.

use super::names;
use crate::support::kinds::WATCHED;
use crate::support::listeners;
use crate::support::prelude::*;

pub(super) fn multi<const N: usize>(client: &Client, names: &[String; N]) -> Lock {
    Lock::multi(names.each_ref().map(|name| client.get_lock(name)))
}

/// Checks that no lock is held, by this client or by any other.
#[track_caller]
pub(super) fn assert_all_free(client: &Client, names: &[String]) {
    assert_eq!(client.held(), []);
    for name in names {
        assert_eq!(fields(RedisServer::shared(), name), [], "{name}");
    }
}

#[test]
fn the_loss_of_an_outer_hold_ends_a_wait_for_its_neighbour() {
    let (ours, theirs, names) = (client(), client(), names::<2>());
    let busy = theirs.get_lock(&names[1]).owned().lock().unwrap();
    let outer = ours.get_lock(&names[0]).lock().unwrap();
    let hold = outer.hold().clone();
    thread::scope(|scope| {
        scope.spawn(|| {
            eventually(SOON, "the take waits", || listeners(RedisServer::shared(), &names[1]) == 1);
            assert!(theirs.get_lock(&names[0]).force_unlock().unwrap());
            assert!(hold.wait_lost(SOON).is_some());
            busy.unlock().unwrap();
        });
        let error = multi(&ours, &names).try_lock_for(SOON).unwrap_err();
        assert!(error.is_lost(), "{error}");
    });
    assert!(outer.unlock().is_err_and(|error| error.is_lost()));
    assert_all_free(&ours, &names);
}

#[test]
fn a_take_re_enters_the_members_of_its_thread() {
    let (client, names) = (client(), names::<2>());
    let [one, two] = names.each_ref().map(|name| client.get_lock(name));
    let outer = one.lock().unwrap();
    let guard = multi(&client, &names).try_lock().unwrap().expect("this thread holds the busy one");
    assert_eq!((one.hold_count(), two.hold_count()), (2, 1));
    let inner = multi(&client, &names).lock().unwrap();
    assert_eq!((one.hold_count(), two.hold_count()), (3, 2));
    drop((guard, inner));
    assert_eq!((one.hold_count(), two.hold_count()), (1, 0));
    assert!(outer.is_held() && elsewhere(|| is_free(&two)) && !elsewhere(|| is_free(&one)));
    // A take that fails gives back the re-entry as well.
    let theirs = elsewhere(|| two.owned().lock().unwrap());
    assert!(multi(&client, &names).try_lock().unwrap().is_none());
    assert!(multi(&client, &names).try_lock_for(ms(60)).unwrap().is_none());
    assert_eq!(fields(RedisServer::shared(), one.name()), [(outer.owner().to_owned(), "1".to_owned())]);
    theirs.unlock().unwrap();
    outer.unlock().unwrap();
    assert_all_free(&client, &names);
}

#[test]
fn a_lost_member_of_the_thread_fails_the_take() {
    let (client, names) = (client(), names::<3>());
    let held = names.each_ref().map(|name| client.get_lock(name)).map(|lock| lock.lock().unwrap());
    let [first, second, third] = held;
    drop(first);
    client.get_lock(&names[1]).force_unlock().unwrap();
    for outcome in [multi(&client, &names).try_lock(), multi(&client, &names).lock().map(Some)] {
        let error = outcome.unwrap_err();
        assert_eq!((error.kind(), error.lock_name()), (ErrorKind::Lost(Loss::Gone), Some(&*names[1])), "{error}");
        assert_eq!(fields(RedisServer::shared(), &names[0]), [], "nothing is taken");
        assert_eq!(client.get_lock(&names[2]).hold_count(), 1, "no re-entry is left");
    }
    drop((second, third));
    assert_all_free(&client, &names);
}

#[test]
fn a_member_lost_without_a_word_fails_the_take() {
    let (client, names) = (client(), names::<2>());
    let guard = client.get_lock(&names[1]).lock().unwrap();
    RedisServer::shared().run(&["DEL", &names[1]]);
    assert_eq!(kind_of(multi(&client, &names).lock()), ErrorKind::Lost(Loss::Gone));
    drop(guard);
    assert_all_free(&client, &names);
}

#[test]
fn a_held_member_without_re_entry_fails_the_take() {
    let (client, [one, two]) = (client(), names());
    let (plain, once) = (client.get_lock(&one), client.get_non_reentrant_lock(&two));
    let guard = once.lock().unwrap();
    let multi = Lock::multi([plain.clone(), once.clone()]);
    for outcome in [multi.lock().map(Some), multi.try_lock(), multi.try_lock_for(SOON)] {
        assert_eq!(kind_of(outcome), ErrorKind::AlreadyHeld);
        assert_eq!(fields(RedisServer::shared(), &one), []);
    }
    assert!(guard.is_held() && once.hold_count() == 1);
    guard.unlock().unwrap();
    assert_all_free(&client, &[one, two]);
}

#[test]
fn a_release_goes_on_after_a_lost_member_and_names_it() {
    for lost in 0..3 {
        for is_known in [false, true] {
            for manual in [false, true] {
                let (client, names) = (client(), names::<3>());
                let multi = multi(&client, &names);
                let guard = multi.lock().unwrap();
                match is_known {
                    true => assert!(client.get_lock(&names[lost]).force_unlock().unwrap()),
                    false => RedisServer::shared().run(&["DEL", &names[lost]]),
                }
                let outcome = if manual {
                    guard.leave_to_unlock();
                    multi.unlock()
                } else {
                    guard.unlock()
                };
                let error = outcome.unwrap_err();
                assert!(error.is_lost() && error.to_string().contains(&names[lost]), "{error}");
                let unnamed = names.iter().filter(|name| !error.to_string().contains(&format!("\"{name}\""))).count();
                assert!(unnamed >= 2, "the others were given back: {error}");
                assert_all_free(&client, &names);
                assert_eq!(kind_of(multi.unlock()), ErrorKind::NotHeld);
            }
        }
    }
}

#[test]
fn a_group_of_groups_is_one_group() {
    let (client, names) = (client(), names::<4>());
    let [one, two, three, four] = names.each_ref().map(|name| client.get_lock(name));
    let inner = Lock::multi([one.clone(), Lock::multi([two.clone()]), three.clone()]);
    let nested = Lock::multi([inner.clone(), four]);
    assert_eq!(nested.name(), format!("multi({})", names.join(", ")));
    let guard = nested.lock().unwrap();
    assert_eq!(guard.hold().members().len(), 4);
    guard.unlock().unwrap();
    for twice in [Lock::multi([inner, two]), Lock::multi([Lock::multi([]), three])] {
        assert_eq!(kind_of(twice.try_lock()), ErrorKind::BadInput);
    }
    assert_all_free(&client, &names);
}

#[test]
fn modifiers_of_the_group_replace_those_of_its_locks() {
    let (client, names) = (client(), names::<3>());
    let [one, two, three] = names.each_ref().map(|name| client.get_lock(name));
    let own = Lock::multi([one.with_lease(ms(5_000)), two.with_max_hold(SOON * 60), three]);
    let kept = |lock: &Lock| {
        let guard = lock.lock().unwrap();
        let of = |name: &String| {
            let held = client.held().into_iter().find(|held| held.name() == name).unwrap();
            let seconds = (ttl_ms(RedisServer::shared(), name) + 999) / 1_000;
            (seconds, held.is_renewed())
        };
        let told = names.each_ref().map(of);
        guard.unlock().unwrap();
        told
    };
    assert_eq!(kept(&own), [(5, false), (30, true), (30, true)], "a group without modifiers leaves them alone");
    assert_eq!(kept(&own.with_lease(ms(60_000))), [(60, false); 3]);
    assert_eq!(kept(&own.with_max_hold(SOON * 60)), [(30, true); 3]);
    let inner = Lock::multi([Lock::multi([own.with_lease(ms(7_000))])]);
    assert_eq!(kept(&inner), [(7, false); 3], "the inner group");
    assert_eq!(kept(&inner.with_lease(ms(9_000))), [(9, false); 3], "the outer group");
    assert_all_free(&client, &names);
}

#[test]
fn impossible_modifiers_of_a_member_are_refused() {
    let (client, [one, two]) = (client(), names());
    let (one, two) = (client.get_lock(&one), client.get_lock(&two));
    let both = two.with_lease(SOON).with_max_hold(SOON);
    for bad in [both.clone(), Lock::multi([both]), two.with_lease(Duration::ZERO), two.with_lease(Duration::MAX)] {
        let multi = Lock::multi([one.clone(), bad]);
        assert_eq!(kind_of(multi.lock()), ErrorKind::BadInput);
        assert_eq!(kind_of(multi.owned().try_lock()), ErrorKind::BadInput);
    }
    // What the group replaces does not matter.
    let multi = Lock::multi([one, two.with_lease(SOON).with_max_hold(SOON)]);
    multi.with_lease(SOON).lock().unwrap().unlock().unwrap();
}

#[test]
fn an_extension_reaches_every_member() {
    let (client, names) = (client(), names::<3>());
    let guard = multi(&client, &names).with_lease(ms(2_000)).lock().unwrap();
    guard.extend(ms(60_000)).unwrap();
    assert!(guard.remaining() > ms(58_000));
    assert!(names.iter().all(|name| ttl_ms(RedisServer::shared(), name) > 59_000));
    RedisServer::shared().run(&["DEL", &names[1]]);
    let error = guard.extend(ms(90_000)).unwrap_err();
    assert!(error.is_lost() && error.to_string().contains(&names[1]), "{error}");
    assert_eq!((guard.is_held(), guard.lost()), (false, Some(Loss::Gone)));
    assert!(guard.unlock().unwrap_err().is_lost());
    assert_all_free(&client, &names);
}

#[test]
fn manual_holds_of_a_group_nest_with_single_ones() {
    let (client, names) = (client(), names::<2>());
    let (multi, one) = (multi(&client, &names), client.get_lock(&names[0]));
    one.lock().unwrap().leave_to_unlock();
    assert_eq!(kind_of(multi.unlock()), ErrorKind::NotHeld, "one of the locks is not held");
    assert_eq!(one.hold_count(), 1, "nothing is released unless every lock can be");
    multi.lock().unwrap().leave_to_unlock();
    assert_eq!((one.hold_count(), multi.hold_count()), (2, 1));
    assert_eq!(elsewhere(|| kind_of(multi.unlock())), ErrorKind::NotHeld, "another thread");
    multi.unlock().unwrap();
    assert_eq!((one.hold_count(), multi.hold_count()), (1, 0));
    one.unlock().unwrap();
    assert_all_free(&client, &names);
}

#[test]
fn a_group_has_members_of_every_kind() {
    let (client, names) = (client(), names::<9>());
    let locks = |client: &Client| -> Vec<Lock> {
        let single = WATCHED.iter().zip(&names).map(|((_, kind), name)| kind(client, name));
        single.chain([client.get_non_reentrant_fair_lock(&names[8])]).collect()
    };
    let guard = Lock::multi(locks(&client)).lock().unwrap();
    let theirs = crate::support::client();
    let busy: Vec<bool> = locks(&theirs).iter().map(|lock| !is_free(lock)).collect();
    let is_read = |place: usize| WATCHED.get(place).is_some_and(|(label, _)| *label == "read");
    assert!(busy.iter().enumerate().all(|(place, busy)| *busy != is_read(place)), "readers share: {busy:?}");
    assert!(guard.hold().members().iter().all(|member| member.is_held()));
    guard.unlock().unwrap();
    assert!(locks(&theirs).iter().all(is_free));
    // Each of them alone keeps the others from being taken.
    for (place, held) in locks(&theirs).into_iter().enumerate().filter(|(place, _)| !is_read(*place)) {
        let held = held.lock().unwrap();
        assert!(Lock::multi(locks(&client)).try_lock().unwrap().is_none(), "{place}");
        assert!(Lock::multi(locks(&client)).try_lock_for(ms(60)).unwrap().is_none(), "{place}");
        assert_eq!(client.held(), []);
        drop(held);
        assert!(locks(&theirs).iter().all(is_free), "{place}");
    }
    let keys = RedisServer::shared().keys();
    let left: Vec<_> = keys.iter().filter(|key| names.iter().any(|name| key.contains(name.as_str()))).collect();
    let counters = |key: &&&String| key.starts_with("redisson_lock_token");
    assert_eq!(left.iter().filter(|key| !counters(key)).count(), 0, "{left:?}");
}

#[test]
fn a_thousand_locks_are_taken_at_once() {
    let client = client();
    let [name] = names();
    let all: Vec<String> = (0..1_000).map(|number| format!("{name}:{number}")).collect();
    let multi = Lock::multi(all.iter().map(|name| client.get_lock(name)));
    let (took, guard) = timed(|| multi.lock().unwrap());
    assert_eq!((client.held().len(), guard.hold().members().len()), (1_000, 1_000));
    assert!(guard.is_held() && took < SOON, "{took:?}");
    guard.unlock().unwrap();
    assert_eq!(client.held(), []);
    let held = client.get_fair_lock(&all[999]).owned().lock().unwrap();
    let before = RedisServer::shared().keys().len();
    assert!(multi.try_lock().unwrap().is_none());
    assert!(all[..999].iter().all(|name| fields(RedisServer::shared(), name).is_empty()), "of {before}");
    held.unlock().unwrap();
}
