//! Several locks as one: all or nothing, whatever their kinds, clients and servers.

mod clients;
mod holds;
mod queues;
mod rounds;
mod told;

use crate::support::prelude::*;

fn names<const N: usize>() -> [String; N] {
    std::array::from_fn(|_| fresh("multi"))
}

#[test]
fn all_locks_are_taken_and_released_together() {
    let (client, [one, two, three]) = (client(), names());
    let multi = Lock::multi([client.get_lock(&one), client.get_fair_lock(&two), client.get_fenced_lock(&three).into()]);
    assert_eq!(multi.name(), format!("multi({one}, {two}, {three})"));
    let guard = multi.lock().unwrap();
    let server = RedisServer::shared();
    for name in [&one, &two, &three] {
        assert_eq!(fields(server, name).len(), 1);
        assert!(elsewhere(|| client.get_lock(name).try_lock().map(|guard| guard.is_none())).unwrap());
    }
    assert!(guard.is_held() && multi.is_locked().unwrap() && multi.hold_count() == 1);
    assert!(guard.remaining() > Duration::from_secs(20) && guard.lost().is_none());
    let members = guard.hold().members();
    let named: Vec<&str> = members.iter().map(|member| member.name()).collect();
    assert_eq!(named, [&one, &two, &three]);
    assert!(members[2].token().is_some() && guard.hold().token().is_none());
    guard.unlock().unwrap();
    for name in [&one, &two, &three] {
        assert!(is_free(&client.get_lock(name)), "{name}");
    }
}

#[test]
fn a_busy_member_leaves_the_others_untouched() {
    let (client, [one, two]) = (client(), names());
    let held = client.get_lock(&two).owned().lock().unwrap();
    let multi = Lock::multi([client.get_lock(&one), client.get_lock(&two)]);
    assert!(multi.try_lock().unwrap().is_none());
    let (took, outcome) = timed(|| multi.try_lock_for(ms(200)));
    assert!(outcome.unwrap().is_none() && took >= ms(200) && took < ms(200) + SCHEDULING, "{took:?}");
    assert!(is_free(&client.get_lock(&one)));
    thread::scope(|scope| {
        let waiter = scope.spawn(|| multi.try_lock_for(SOON).unwrap().expect("it is released").unlock());
        thread::sleep(ms(50));
        assert!(is_free(&client.get_lock(&one)), "a waiter holds nothing");
        held.unlock().unwrap();
        joined(waiter).unwrap();
    });
}

#[test]
fn opposite_orders_do_not_deadlock() {
    let (client, names) = (client(), names::<3>());
    let lock = |order: [usize; 3]| Lock::multi(order.map(|index| client.get_lock(&names[index])));
    let (there, back) = (lock([0, 1, 2]), lock([2, 1, 0]));
    let inside = std::sync::atomic::AtomicUsize::new(0);
    let (took, ()) = timed(|| {
        thread::scope(|scope| {
            for lock in [&there, &back, &there, &back] {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let guard = lock.lock().unwrap();
                        assert_eq!(inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst), 0);
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                        guard.unlock().unwrap();
                    }
                });
            }
        });
    });
    assert!(took < SOON * 2, "{took:?}");
}

#[test]
fn the_loss_of_one_lock_is_the_loss_of_all() {
    let (client, [one, two]) = (brisk_client(), names());
    let guard = Lock::multi([client.get_lock(&one), client.get_lock(&two)]).lock().unwrap();
    let hold = guard.hold().clone();
    let waiter = thread::spawn(move || hold.wait_lost(SOON));
    client.get_lock(&two).force_unlock().unwrap();
    assert_eq!(waiter.join().unwrap(), Some(Loss::Gone));
    assert!(!guard.is_held() && guard.lost() == Some(Loss::Gone));
    let error = guard.unlock().unwrap_err();
    assert!(error.is_lost() && error.to_string().contains(&two), "{error}");
    assert!(is_free(&client.get_lock(&one)), "the rest is given back");
}

#[test]
fn impossible_groups_are_refused_before_any_request() {
    let (client, [one]) = (client(), names());
    let twice = Lock::multi([client.get_lock(&one), client.get_fair_lock(&one)]);
    let many = Lock::multi((0..1_001).map(|index| client.get_lock(format!("{one}:{index}"))));
    let both = client.get_read_write_lock(&one);
    let sides = Lock::multi([both.read(), both.write()]);
    for bad in [Lock::multi([]), twice, many, sides, Lock::multi([client.get_lock("")])] {
        assert_eq!(kind_of(bad.lock()), ErrorKind::BadInput);
    }
}
