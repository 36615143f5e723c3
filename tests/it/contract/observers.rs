//! What observers hear of the end of each call, and what they may do in the middle of a call: close the client, take
//! locks.

use std::sync::OnceLock;

use crossbeam_channel::{Receiver, Sender};
use lockson::{Durability, HoldEnded, Observer, OwnedLock};

use super::for_every_single_kind;
use crate::support::prelude::*;

fn observed(events: &Events) -> Client {
    Client::builder(&RedisServer::shared().url()).observer(events.clone()).connect().unwrap()
}

#[test]
fn each_call_of_each_kind_tells_its_end() {
    for_every_single_kind(|kind| {
        let (events, name, stop) = (Events::default(), kind.fresh(), Cancel::new());
        let ours = kind.get_lock(&observed(&events), &name);
        let theirs = kind.get_lock(&client(), &name).lock().unwrap();
        let label = kind.label.replace(['-', ' '], "_");
        let ends = |outcomes: &[&str]| -> Vec<String> {
            outcomes.iter().map(|outcome| format!("{label} {name} {outcome}")).collect()
        };
        assert!(ours.try_lock().unwrap().is_none() && ours.try_lock_for(ms(20)).unwrap().is_none());
        assert_eq!(events.take_ends(), ends(&["busy", "busy"]));
        let waits = || events.of(&name).iter().filter(|told| *told == "waiting").count();
        let before = waits();
        thread::scope(|scope| {
            let waiter = scope.spawn(|| ours.with_cancel(&stop).lock().map(drop));
            eventually(SOON, "it waits", || waits() > before);
            stop.cancel();
            joined(waiter).unwrap_err();
        });
        assert_eq!(events.take_ends(), ends(&["cancelled"]));
        thread::scope(|scope| {
            let waiter = scope.spawn(|| drop(ours.lock().unwrap()));
            eventually(SOON, "it waits", || waits() > before + 1);
            theirs.unlock().unwrap();
            joined(waiter);
        });
        assert_eq!(events.take_ends(), [vec![format!("waited {name}")], ends(&["acquired"])].concat());
        let outer = ours.lock().unwrap();
        drop(kind.reenters.then(|| ours.lock().unwrap()));
        assert_eq!(events.take_ends(), ends(&["acquired"]), "a re-entry is no take");
        outer.unlock().unwrap();
    });
}

#[test]
fn permits_and_semaphores_tell_the_ends_of_calls() {
    let (events, name) = (Events::default(), fresh("permits"));
    let ours = observed(&events);
    let semaphore = ours.get_semaphore(&name);
    assert!(semaphore.set_permits_once(1).unwrap() && semaphore.try_acquire(2).unwrap().is_none());
    semaphore.acquire(1).unwrap().release().unwrap();
    let name_of_permits = fresh("expiring");
    let permits = ours.get_permit_expirable_semaphore(&name_of_permits);
    assert!(permits.set_permits_once(1).unwrap() && permits.try_acquire(2).unwrap().is_none());
    permits.acquire(1).unwrap().release().unwrap();
    let ends = [("semaphore", name), ("permit", name_of_permits)]
        .map(|(kind, name)| ["busy", "acquired"].map(|outcome| format!("{kind} {name} {outcome}")));
    assert_eq!(events.take_ends(), ends.concat());
}

#[test]
fn an_observer_that_closes_the_client_loses_no_permit() {
    let (name, slot) = (fresh("permits"), Arc::new(OnceLock::<Client>::new()));
    let closes = Arc::clone(&slot);
    let observer = Events::acting(move |_, _| closes.get().into_iter().for_each(Client::close));
    let url = RedisServer::shared().url();
    let ours = Client::builder(&url).observer(observer).drop_timeout(SOON).connect().unwrap();
    slot.set(ours.clone()).unwrap();
    let theirs = client().get_semaphore(&name);
    assert!(theirs.set_permits_once(3).unwrap());
    drop(ours.get_semaphore(&name).acquire(1));
    assert_eq!(theirs.available().unwrap(), 3);
}

#[test]
fn an_observer_may_reenter_what_a_release_of_several_leaves() {
    let ([stays, goes], slot) = ([fresh("several"), fresh("several")], Arc::new(OnceLock::<Lock>::new()));
    let (told, heard) = unbounded();
    let (reenters, last) = (Arc::clone(&slot), goes.clone());
    let observer = Events::acting(move |event, name| {
        if (event, name) == ("released", &*last) {
            let inner = reenters.get().unwrap().try_lock();
            told.send(inner.map(|inner| inner.is_some_and(|inner| inner.unlock().is_ok()))).unwrap();
        }
    });
    let client = Client::builder(&RedisServer::shared().url()).observer(observer).connect().unwrap();
    slot.set(client.get_lock(&stays)).unwrap();
    let outer = client.get_lock(&stays).lock().unwrap();
    Lock::multi([client.get_lock(&stays), client.get_lock(&goes)]).lock().unwrap().unlock().unwrap();
    assert!(heard.recv_timeout(SOON).unwrap().unwrap(), "taken again and given back");
    outer.unlock().unwrap();
    client.close();
}

/// At the end of a hold that is left to expire, takes a lock that was held beside it.
#[derive(Debug)]
struct TakesBeside(OnceLock<OwnedLock>, Sender<bool>);

impl Observer for TakesBeside {
    fn hold_ended(&self, event: &HoldEnded) {
        if event.is_kept() {
            let taken = self.0.get().unwrap().try_lock_for(ms(500)).unwrap();
            self.1.send(taken.is_some()).unwrap();
        }
    }
}

#[test]
fn an_observer_may_take_what_a_release_of_several_ends() {
    let (told, heard) = unbounded();
    let observer = Arc::new(TakesBeside(OnceLock::new(), told));
    let client = Client::builder(&RedisServer::shared().url()).observer(Arc::clone(&observer)).connect().unwrap();
    let [kept, free] = [(); 2].map(|()| client.get_lock(fresh("several")));
    observer.0.set(free.owned()).unwrap();
    let both = Lock::multi([&kept, &free].map(Lock::clone)).lock().unwrap();
    kept.with_lease(ms(1_000)).lock().unwrap().keep_until_expiry();
    both.unlock().unwrap();
    assert!(heard.recv_timeout(SOON).unwrap(), "the lock beside it is free by then");
}

/// A client that only its own requests tell of a loss, its lock, and what its observer of a loss does with the lock.
fn acting_on_a_loss<T: Send + 'static>(
    server: &RedisServer,
    name: &str,
    act: impl Fn(&Lock) -> T + Send + Sync + 'static,
) -> (Client, Lock, Receiver<T>) {
    server.run(&["ACL", "SETUSER", "unwatched", "on", ">secret", "~*", "&*", "+@all", "-client|tracking"]);
    let (slot, (told, heard)) = (Arc::new(OnceLock::<Lock>::new()), unbounded());
    let again = Arc::clone(&slot);
    let observer = Events::acting(move |event, _| {
        if event.starts_with("lost") {
            told.send(act(again.get().unwrap())).unwrap();
        }
    });
    let url = server.url().replace("redis://", "redis://unwatched:secret@");
    let client = Client::builder(&url).observer(observer).connect().unwrap();
    let lock = client.get_lock(name);
    slot.set(lock.clone()).unwrap();
    (client, lock, heard)
}

#[test]
fn an_observer_of_a_loss_may_take_the_lock_of_a_failed_take() {
    let (server, name) = (RedisServer::start(), fresh("durable"));
    let takes = |lock: &Lock| lock.try_lock_for(SOON * 2).map(|taken| taken.is_some());
    let (client, lock, heard) = acting_on_a_loss(&server, &name, takes);
    let older = lock.owned().lock().unwrap();
    thread::scope(|scope| {
        let copied = lock.with_durability(Durability::replicas(1).within(ms(50)));
        let waiter = scope.spawn(move || copied.lock().map(drop));
        eventually(SOON, "it waits", || !client.waiting().is_empty());
        server.run(&["DEL", &name]);
        assert!(heard.recv_timeout(SOON).unwrap().unwrap(), "nobody holds the lock");
        joined(waiter).unwrap_err();
    });
    assert!(older.lost().is_some());
}

#[test]
fn a_take_in_doubt_is_cleared_away_beside_an_observer() {
    let (rig, name) = (Rig::start(), fresh("doubt"));
    let (theirs, (told, heard)) = (rig.direct().get_lock(&name), unbounded());
    let observer = Events::acting(move |event, _| {
        if event.starts_with("gave up") {
            told.send(theirs.try_lock_for(SOON).map(|taken| taken.is_some())).unwrap();
        }
    });
    let ours = rig.impatient().observer(observer).connect().unwrap().get_lock(&name);
    let stop = rig.direct().get_lock(&name).lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| ours.with_lease(SOON * 10).lock().map(drop));
        rig.has_asked_after_its_second(&rig.script("acquire"));
        rig.proxy.rule(rig.script("acquire").always(), Then::SwallowReply);
        stop.unlock().unwrap();
        assert!(heard.recv_timeout(SOON * 2).unwrap().unwrap(), "nobody holds the lock");
        joined(waiter).unwrap_err();
    });
}

#[test]
fn an_observer_of_a_loss_is_told_at_once_that_its_hold_is_lost() {
    let (server, name) = (RedisServer::start(), fresh("lost"));
    let (_client, lock, heard) = acting_on_a_loss(&server, &name, |lock| lock.try_lock().map(drop));
    let finds: [fn(&Lock, &Guard) -> lockson::Result<()>; 2] =
        [|lock, _| lock.try_lock().map(drop), |_, outer| outer.extend(SOON)];
    for finds in finds {
        let outer = lock.lock().unwrap();
        server.run(&["DEL", &name]);
        let (took, found) = timed(|| finds(&lock, &outer));
        assert!(found.unwrap_err().is_lost() && heard.recv_timeout(SOON).unwrap().unwrap_err().is_lost());
        assert!(took < ms(1_000) + SCHEDULING, "{took:?}");
    }
}
