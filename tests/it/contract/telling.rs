//! The receivers of the news of a loss, and how often each receives the news.

use std::sync::OnceLock;

use crossbeam_channel::Sender;

use super::{delete, for_a_lock_of_every_kind, for_every_kind, for_every_reentrant_kind, for_every_single_kind, key};
use crate::support::prelude::*;

#[test]
fn each_way_to_learn_of_a_loss_tells_it_once() {
    for_every_reentrant_kind(|kind| {
        let (notes, client) = Events::of_client(brisk(RedisServer::shared()));
        let lock = kind.get_lock(&client, &kind.fresh());
        let [outer, middle, inner] = [(); 3].map(|()| lock.lock().unwrap());
        let (told, heard) = unbounded();
        outer.on_lost(tell(&told));
        inner.on_lost(tell(&told));
        let hold = inner.hold().clone();
        thread::scope(|scope| {
            let waiters = [scope.spawn(|| hold.wait_lost(SOON)), scope.spawn(|| hold.wait_lost(Duration::MAX))];
            delete(&lock);
            assert!(waiters.into_iter().all(|waiter| joined(waiter) == Some(Loss::Gone)));
        });
        assert_eq!((outer.lost(), inner.lost()), (Some(Loss::Gone), Some(Loss::Gone)));
        assert_eq!([heard.recv_timeout(SOON), heard.recv_timeout(SOON)], [Ok(Loss::Gone), Ok(Loss::Gone)]);
        eventually(SOON, "the observer is told", || notes.losses_of(key(lock.name())) == 1);

        // No later call on the lost hold reports the loss again.
        assert!(!outer.is_held() && !inner.is_held());
        let later = [kind_of(inner.extend(ms(100))), kind_of(inner.unlock()), kind_of(lock.try_lock())];
        assert_eq!(later, [ErrorKind::Lost(Loss::Gone); 3], "the outer guards are there yet");
        assert_eq!(kind_of(middle.unlock()), ErrorKind::Lost(Loss::Gone));
        drop(outer);
        assert!(heard.recv_timeout(TICK * 3).is_err());
        assert_eq!(notes.of(key(lock.name())), ["acquired", "lost: Gone", "release failed"]);
        assert!(is_free(&lock));
    });
}

#[test]
fn an_expired_lease_is_told_before_the_lock_is_free() {
    for_every_kind(|kind| {
        let (notes, client) = Events::of_client(brisk(RedisServer::shared()));
        let lock = kind.get_lock(&client, &kind.fresh());
        let mut server = RedisServer::shared().connection();
        for (lease, half_a_margin) in [(ms(300), 15), (ms(1_000), 25)] {
            let mut is_told_before_the_end = || {
                let (told, heard) = unbounded();
                let started = Instant::now();
                let guard = lock.with_lease(lease).lock().unwrap();
                assert!(guard.remaining() < lease);
                guard.on_lost(move |loss| told.send((*loss, Instant::now())).unwrap());
                // Nobody else asks for the hold meanwhile.
                let (loss, at) = heard.recv_timeout(SOON).unwrap();
                let left: i64 = redis::cmd("PTTL").arg(key(lock.name())).query(&mut server).unwrap();
                let after = at.duration_since(started);
                assert_eq!((loss, guard.wait_lost(SOON)), (Loss::Expired, Some(Loss::Expired)));
                assert!(after >= lease * 4 / 5 && after <= lease + SCHEDULING, "{after:?}");
                // Redis reports the end of the key, too, but only after the lease.
                left > half_a_margin && after < lease
            };
            // A busy machine may be late now and then, but not always.
            assert!((0..20).any(|_| is_told_before_the_end()), "told only when a lease of {lease:?} was over");
        }
        let unasked = kind.get_lock(&client, &kind.fresh());
        let _guard = unasked.with_lease(ms(300)).lock().unwrap();
        eventually(SOON, "the observer is told", || notes.losses_of(key(unasked.name())) == 1);
    });
}

#[test]
fn an_extended_lease_tells_its_loss_at_its_new_end() {
    for_every_kind(|kind| {
        let (notes, client) = Events::of_client(brisk(RedisServer::shared()));
        let lock = kind.get_lock(&client, &kind.fresh());
        let guard = lock.with_lease(ms(1_000)).lock().unwrap();
        let (told, heard) = unbounded();
        guard.on_lost(move |loss| told.send((*loss, Instant::now())).unwrap());
        let extended = Instant::now();
        guard.extend(ms(1_700)).unwrap();
        let (loss, at) = heard.recv_timeout(SOON).expect("the callback is called");
        let after = at.duration_since(extended);
        assert_eq!((loss, guard.remaining()), (Loss::Expired, Duration::ZERO));
        assert!(after >= ms(1_600) && after <= ms(1_700) + SCHEDULING, "{after:?}");
        eventually(SOON, "the observer is told", || notes.losses_of(key(lock.name())) == 1);
    });
}

#[test]
fn a_callback_runs_on_a_thread_of_the_client() {
    for_a_lock_of_every_kind(|_, lock| {
        let guard = lock.lock().unwrap();
        let (told, heard) = unbounded();
        let tell_thread = || {
            let told = told.clone();
            move |_: &Loss| told.send(thread::current().id()).unwrap()
        };
        guard.on_lost(tell_thread());
        delete(&lock);
        assert!(guard.extend(SOON).is_err(), "this thread discovers the loss");
        guard.on_lost(tell_thread());
        for _ in 0..2 {
            assert_ne!(heard.recv_timeout(SOON).unwrap(), thread::current().id());
        }
    });
}

#[test]
fn the_observer_sees_each_hold_come_and_go() {
    for_every_reentrant_kind(|kind| {
        let (notes, client) = Events::of_client(brisk(RedisServer::shared()));
        let lock = kind.get_lock(&client, &kind.fresh());
        let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
        inner.unlock().unwrap();
        drop(outer);
        assert!(elsewhere(|| is_free(&lock)));
        assert_eq!(notes.of(key(lock.name())), ["acquired", "released", "acquired", "released"]);
    });
}

#[test]
fn a_late_callback_runs_at_once_and_never_after_a_release() {
    for_a_lock_of_every_kind(|_, lock| {
        let (told, heard) = unbounded();
        let guard = lock.lock().unwrap();
        let hold = guard.hold().clone();
        guard.on_lost(tell(&told));
        guard.unlock().unwrap();
        hold.on_lost(tell(&told));
        assert_eq!(hold.wait_lost(SOON), None, "given back is not lost");

        let guard = lock.with_lease(ms(100)).lock().unwrap();
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Expired));
        guard.on_lost(tell(&told));
        assert_eq!(heard.recv_timeout(SOON), Ok(Loss::Expired));
        assert!(heard.recv_timeout(ms(100)).is_err(), "one loss, one call");
    });
}

#[test]
fn a_wait_for_a_loss_ends_at_its_limit_and_with_the_hold() {
    for_a_lock_of_every_kind(|_, lock| {
        let guard = lock.lock().unwrap();
        let (took, loss) = timed(|| guard.wait_lost(ms(100)));
        assert!(loss.is_none() && took >= ms(100) && took <= ms(100) + GRACE + SCHEDULING, "{took:?}");
        assert_eq!(guard.wait_lost(Duration::ZERO), None);
        let hold = guard.hold().clone();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| timed(|| hold.wait_lost(SOON)));
            guard.unlock().unwrap();
            let (took, loss) = joined(waiter);
            assert!(loss.is_none() && took < SOON / 2, "{took:?}");
        });
    });
}

#[test]
fn a_callback_that_panics_stops_no_other() {
    for_every_kind(|kind| {
        let lock = kind.get_lock(&brisk_client(), &kind.fresh());
        let guard = lock.lock().unwrap();
        let (told, heard) = unbounded();
        guard.on_lost(|_| panic!("this panic is part of the test"));
        guard.on_lost(tell(&told));
        delete(&lock);
        assert_eq!(heard.recv_timeout(SOON), Ok(Loss::Gone));
        drop(guard);
        let guard = lock.lock().unwrap();
        guard.on_lost(tell(&told));
        delete(&lock);
        assert_eq!(heard.recv_timeout(SOON), Ok(Loss::Gone), "nor the callbacks of later holds");
    });
}

#[test]
fn a_callback_may_use_the_client_and_take_locks() {
    for_every_kind(|kind| {
        let client = brisk_client();
        let lock = kind.get_lock(&client, &kind.fresh());
        let guard = lock.lock().unwrap();
        let (told, heard) = unbounded();
        let (same, other) = (lock.clone(), kind.get_lock(&client, &kind.fresh()));
        let hold = guard.hold().clone();
        guard.on_lost(move |loss| {
            let again = same.try_lock().unwrap().map(|guard| guard.unlock());
            let other = other.lock().unwrap();
            // The other members of a group are lost right after.
            eventually(SOON, "nothing else is held", || client.held().len() == other.hold().members().len());
            told.send((again.is_some(), other.is_held(), hold.lost() == Some(*loss))).unwrap();
        });
        delete(&lock);
        assert_eq!(heard.recv_timeout(SOON), Ok((true, true, true)));
    });
}

#[test]
fn a_callback_with_its_own_hold_keeps_no_client_open() {
    for_every_kind(|kind| {
        let label = fresh("cycle").replace(':', "-");
        let client = Client::builder(&RedisServer::shared().url()).client_name(&label).connect().unwrap();
        let guard = kind.get_lock(&client, &kind.fresh()).lock().unwrap();
        let hold = guard.hold().clone();
        guard.on_lost(move |_| assert!(!hold.is_held()));
        guard.unlock().unwrap();
        drop(client);
        eventually(SOON, "the client is gone", || RedisServer::shared().clients_named(&label) == 0);
    });
}

#[test]
fn an_observer_may_take_locks() {
    for_every_single_kind(|kind| {
        let (told, heard) = unbounded();
        let slot = Arc::new(OnceLock::<Lock>::new());
        let curious = Arc::clone(&slot);
        // At each event of another lock takes a lock of its own.
        let observer = Events::acting(move |event, name| {
            let Some(lock) = curious.get().filter(|lock| !name.is_empty() && key(lock.name()) != name) else { return };
            let taken = lock.try_lock_for(SOON).unwrap().is_some_and(|guard| guard.unlock().is_ok());
            told.send((event.to_owned(), name.to_owned(), taken)).unwrap();
        });
        let client = brisk(RedisServer::shared()).observer(observer).connect().unwrap();
        slot.set(kind.get_lock(&client, &kind.fresh())).unwrap();

        let lock = kind.get_lock(&client, &kind.fresh());
        lock.lock().unwrap().unlock().unwrap();
        let guard = lock.lock().unwrap();
        delete(&lock);
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Gone));
        for event in ["acquired", "released", "acquired", "lost: Gone"] {
            assert_eq!(heard.recv_timeout(SOON), Ok((event.to_owned(), key(lock.name()).to_owned(), true)));
        }
        drop(guard);
        // The observer holds a lock of the client and the client the observer.
        client.close();
    });
}

fn tell(told: &Sender<Loss>) -> impl FnOnce(&Loss) + Send + 'static {
    let told = told.clone();
    move |loss| told.send(*loss).unwrap()
}
