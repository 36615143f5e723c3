//! Waiters of a semaphore: the waiter that a message wakes, the number of questions, and the ends of a wait.

use std::sync::Mutex;
use std::sync::mpsc::channel;

use lockson::{ExpiringPermits, LockKind, Observer, PermitExpirableSemaphore, Permits, Semaphore, WaitLasts};

use super::{free, semaphore_with};
use crate::support::prelude::*;

/// Waits until so many threads of the client sleep.
fn wait_for_waiters(client: &Client, waiters: usize) {
    eventually(SOON, "the threads wait", || client.waiting().len() == waiters);
}

/// A semaphore of either kind.
trait Counted: Sync {
    fn take(&self, permits: u32, cancel: Option<&Cancel>) -> lockson::Result<Taken>;
    fn add(&self, permits: i64);
    fn free(&self) -> i64;
}

/// Permits, given back when they are dropped.
struct Taken {
    count: usize,
    _permits: Box<dyn Send>,
}

macro_rules! counted {
    ($semaphore:ty, $count:expr) => {
        impl Counted for $semaphore {
            fn take(&self, permits: u32, cancel: Option<&Cancel>) -> lockson::Result<Taken> {
                let permits = cancel.map_or(self.clone(), |cancel| self.with_cancel(cancel)).acquire(permits)?;
                Ok(Taken { count: $count(&permits), _permits: Box::new(permits) })
            }

            fn add(&self, permits: i64) {
                self.add_permits(permits).unwrap();
            }

            fn free(&self) -> i64 {
                self.available().unwrap()
            }
        }
    };
}

counted!(Semaphore, |permits: &Permits| permits.count() as usize);
counted!(PermitExpirableSemaphore, |permits: &ExpiringPermits| permits.ids().len());

type Make = fn(&Client, u32) -> Box<dyn Counted>;

const KINDS: [Make; 2] = [
    |client, permits| Box::new(semaphore_with(client, permits)),
    |client, permits| {
        let semaphore = client.get_permit_expirable_semaphore(fresh("permits"));
        semaphore.set_permits(permits).unwrap();
        Box::new(semaphore)
    },
];

/// The waits that last, as the observer is told.
#[derive(Debug, Default, Clone)]
struct Lasting(Arc<Mutex<Vec<(String, LockKind, Duration)>>>);

impl Observer for Lasting {
    fn still_waiting(&self, event: &WaitLasts) {
        self.0.lock().unwrap().push((event.name().to_owned(), event.kind(), event.waited()));
    }
}

/// Nobody set the permits, or fewer than are wanted, or a holder never ends: the caller sees nothing of it.
#[test]
fn a_wait_that_lasts_is_told_once() {
    const SECOND: Duration = Duration::from_secs(1);
    let lasting = Lasting::default();
    let builder = Client::builder(&RedisServer::shared().url()).watchdog(SECOND, ms(100)).observer(lasting.clone());
    let client = builder.connect().unwrap();
    let (unset, few) = (client.get_semaphore(fresh("unset")), client.get_permit_expirable_semaphore(fresh("few")));
    few.set_permits(2).unwrap();
    let busy = client.get_lock(fresh("busy"));
    let _held = crate::support::client().get_lock(busy.name()).lock().unwrap();
    thread::scope(|scope| {
        let unset = scope.spawn(|| unset.try_acquire_for(1, SECOND * 3).unwrap().is_none());
        let few = scope.spawn(|| few.try_acquire_for(3, SECOND * 3).unwrap().is_none());
        let busy = scope.spawn(|| busy.try_lock_for(SECOND * 3).unwrap().is_none());
        assert!(joined(unset) && joined(few) && joined(busy));
    });
    let mut told = lasting.0.lock().unwrap().clone();
    told.sort_by(|one, other| one.0.cmp(&other.0));
    let waits = [(busy.name(), LockKind::Plain), (few.name(), LockKind::Permit), (unset.name(), LockKind::Semaphore)];
    assert_eq!(told.iter().map(|(name, kind, _)| (name.as_str(), *kind)).collect::<Vec<_>>(), waits);
    assert!(told.iter().all(|(.., waited)| *waited >= SECOND), "{told:?}");
}

#[test]
fn a_waiter_for_one_passes_a_waiter_for_two() {
    at_once(KINDS, |make| {
        let client = client();
        let took = median(5, |_| {
            let permits = make(&client, 0);
            thread::scope(|scope| {
                let two = scope.spawn(|| permits.take(2, None).unwrap());
                wait_for_waiters(&client, 1);
                let one = scope.spawn(|| permits.take(1, None).unwrap());
                wait_for_waiters(&client, 2);
                let (took, one) = timed(|| {
                    permits.add(1);
                    joined(one)
                });
                assert!(!two.is_finished());
                permits.add(1);
                drop(one);
                assert_eq!(joined(two).count, 2);
                took
            })
        });
        assert!(took < ms(300) + STANDSTILLS, "{took:?}");
    });
}

#[test]
fn waiters_of_one_process_are_served_in_order() {
    const WAITERS: usize = 300;
    // Requests for each release.
    at_once([(KINDS[0], 2), (KINDS[1], 3)], |(make, most)| {
        let (server, client) = alone();
        let permits = make(&client, 1);
        let held = permits.take(1, None).unwrap();
        let (served, order) = channel();
        thread::scope(|scope| {
            for index in 0..WAITERS {
                let (permits, served) = (&permits, served.clone());
                let wait = move || {
                    let _permit = permits.take(1, None).unwrap();
                    served.send(index).unwrap();
                };
                thread::Builder::new().stack_size(256 * 1024).spawn_scoped(scope, wait).unwrap();
                wait_for_waiters(&client, index + 1);
            }
            let (before, began) = (server.calls_of("evalsha"), Instant::now());
            assert!(before < WAITERS as u64 / 2, "only the first waiter asks, but there were {before} questions");
            drop(held);
            let all: Vec<usize> = order.iter().take(WAITERS).collect();
            let took = began.elapsed();
            assert!(all.iter().copied().eq(0..WAITERS), "served out of order: {all:?}");
            let releases = WAITERS as u64 + 1;
            let questions = server.calls_of("evalsha") - before - releases;
            assert!(questions <= most * releases, "{questions} questions for {releases} releases");
            assert!(took < SOON * 2, "{took:?}");
        });
        assert_eq!(permits.free(), 1);
    });
}

/// The first waiter gives up while it asks for the permit of which a message told.
#[test]
fn a_waiter_that_gives_up_passes_its_wake_up_on() {
    const QUESTIONS: [&str; 2] =
        [include_str!("../../../../lua/semaphore/acquire.lua"), include_str!("../../../../lua/permits/acquire.lua")];
    at_once(KINDS.into_iter().zip(QUESTIONS), |(make, question)| {
        let (rig, client) = Rig::start().and(Rig::client);
        let question = rig.script_of(question);
        for round in 0..3 {
            let (permits, cancel) = (make(&client, 0), Cancel::new());
            thread::scope(|scope| {
                let impatient = scope.spawn(|| permits.take(1, Some(&cancel)).map(drop));
                wait_for_waiters(&client, 1);
                let patient = scope.spawn(|| permits.take(1, None).unwrap());
                wait_for_waiters(&client, 2);
                let asked = rig.proxy.rule(question.clone(), Then::HoldRequest);
                permits.add(1);
                asked.wait_hit(SOON);
                cancel.cancel();
                assert!(joined(impatient).is_err(), "its request is held");
                let (took, _permit) = timed(|| joined(patient));
                asked.remove();
                assert!(took < ms(300) + STANDSTILLS, "round {round}: the wake-up was lost: {took:?}");
            });
        }
    });
}

#[test]
fn waits_end_by_time_cancel_and_close() {
    let client = client();
    let semaphore = semaphore_with(&client, 0);
    let (took, none) = timed(|| semaphore.try_acquire_for(1, ms(200)).unwrap());
    assert!(none.is_none() && took >= ms(200) && took < ms(200) + SCHEDULING);
    let cancel = Cancel::new();
    thread::scope(|scope| {
        let waiters = [scope.spawn(|| semaphore.with_cancel(&cancel).acquire(1)), scope.spawn(|| semaphore.acquire(1))];
        wait_for_waiters(&client, 2);
        let waiting = client.waiting();
        assert!(waiting.iter().all(|waiter| waiter.kind() == LockKind::Semaphore && waiter.name() == semaphore.name()));
        let [cancelled, closed] = waiters;
        cancel.cancel();
        assert_eq!(kind_of(joined(cancelled)), ErrorKind::Cancelled);
        client.close();
        assert_eq!(kind_of(joined(closed)), ErrorKind::Closed);
    });
    assert!(client.waiting().is_empty());
    assert_eq!(kind_of(semaphore.try_acquire(1)), ErrorKind::Closed);
}

#[test]
fn a_closed_client_gives_its_permits_back() {
    let (server, closing) = (RedisServer::shared(), client());
    let semaphore = semaphore_with(&closing, 5);
    let (one, two) = (semaphore.acquire(1).unwrap(), semaphore.acquire(2).unwrap());
    closing.close();
    assert_eq!(server.query::<String>(&["GET", semaphore.name()]), "5");
    assert_eq!(kind_of(one.release()), ErrorKind::Closed);
    drop(two);
    assert_eq!(server.query::<String>(&["GET", semaphore.name()]), "5");
}

#[test]
fn an_odd_message_breaks_nothing() {
    let (server, client) = (RedisServer::start(), Events::default());
    let events = client.clone();
    let client = Client::builder(&server.url()).observer(client).connect().unwrap();
    let semaphore = semaphore_with(&client, 0);
    let channel = prefixed("redisson_sc", semaphore.name());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| semaphore.acquire(1).unwrap());
        wait_for_waiters(&client, 1);
        eventually(SOON, "the channel is subscribed", || server.subscribers(&channel) == 1);
        let mut connection = server.connection();
        for odd in [&b"-5"[..], b"", b"abc", b"\xff\xfe", b"99999999999999999999999", b"1.5", b"0"] {
            redis::cmd("PUBLISH").arg(&channel).arg(odd).exec(&mut connection).unwrap();
        }
        let (took, _permits) = timed(|| {
            semaphore.release(1).unwrap();
            joined(waiter)
        });
        assert!(took < ms(800) + STANDSTILLS, "the connection still hears: {took:?}");
    });
    assert_eq!(events.count_of("not heard"), 0);
    assert_eq!(server.subscribers(&channel), 1, "the same connection");
}

#[test]
fn waiters_see_permits_that_no_message_announced() {
    let (server, client) = (RedisServer::shared(), client());
    let semaphore = semaphore_with(&client, 0);
    let (took, ()) = timed(|| {
        thread::scope(|scope| {
            let waiters: Vec<_> = (0..5).map(|_| scope.spawn(|| semaphore.acquire(1).unwrap())).collect();
            wait_for_waiters(&client, 5);
            server.run(&["INCRBY", semaphore.name(), "5"]);
            waiters.into_iter().for_each(|waiter| joined(waiter).leave_to_release());
        });
    });
    assert!(took < ms(1_000) + SCHEDULING, "{took:?}");
    assert_eq!(free(&semaphore), 0);
}

#[test]
fn permits_are_waited_for_beside_plain_permits_of_the_name() {
    // A semaphore of the name has no channel of its own: both listen to one.
    let client = client();
    let name = fresh("permits");
    let (expiring, plain) = (client.get_permit_expirable_semaphore(&name), client.get_semaphore(&name));
    expiring.set_permits(0).unwrap();
    thread::scope(|scope| {
        let first = scope.spawn(|| expiring.acquire(1).map(ExpiringPermits::release));
        let second = scope.spawn(|| plain.acquire(1).map(Permits::release));
        wait_for_waiters(&client, 2);
        expiring.add_permits(1).unwrap();
        joined(first).unwrap().unwrap();
        joined(second).unwrap().unwrap();
    });
    assert_eq!(kind_of(expiring.try_acquire(0)), ErrorKind::BadInput);
    assert_eq!(expiring.available().unwrap(), 1);
}

#[test]
fn a_name_in_braces_waits_for_its_own_permits() {
    let (client, name) = (client(), fresh("semaphore"));
    let [bare, braced] = [name.clone(), format!("{{{name}}}")].map(|name| client.get_semaphore(name));
    assert!(braced.set_permits_once(1).unwrap());
    thread::scope(|scope| {
        let without = scope.spawn(|| bare.try_acquire_for(1, SOON).unwrap().is_some());
        wait_for_waiters(&client, 1);
        let permit = braced.try_acquire_for(1, ms(500)).unwrap();
        let first = permit.expect("the waiter for the other name is no reason to wait");
        // A waiter for each name: a message wakes both.
        let next = scope.spawn(|| braced.try_acquire_for(1, SOON).unwrap().is_some());
        wait_for_waiters(&client, 2);
        let (took, ()) = timed(|| {
            first.release().unwrap();
            assert!(joined(next));
        });
        assert!(took < ms(500) + STANDSTILLS, "woken by the message, not by the clock: {took:?}");
        bare.release(1).unwrap();
        assert!(joined(without));
    });
}
