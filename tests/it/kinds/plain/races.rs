//! Two requests at once about one hold: in any order in Redis, the client never believes in too long a hold.

use crate::support::prelude::*;

/// A client behind a proxy, and a server that knows every script: rules never hit the loading of a script.
fn rig() -> (Proxy, Client) {
    let proxy = Proxy::start(RedisServer::shared().address());
    let client = Client::builder(&proxy.url()).watchdog(ms(10_000), ms(300)).connect().unwrap();
    let lock = client.get_lock(fresh("warm"));
    let guard = lock.lock().unwrap();
    drop(lock.lock().unwrap());
    guard.extend(ms(1_000)).unwrap();
    guard.unlock().unwrap();
    assert!(!lock.force_unlock().unwrap());
    (proxy, client)
}

/// A renewal: the script with a name, an owner and a lease, but no count.
fn renewal_of(name: &str) -> When {
    let name = name.to_owned();
    When::script().containing(&name).that(move |request| request.arguments.len() == 5 && request.text(4) == "10000")
}

#[test]
fn a_renewal_answered_late_does_not_outweigh_a_partial_release() {
    let (proxy, client) = rig();
    let lock = client.get_lock(fresh("race"));
    let outer = lock.lock().unwrap();
    let inner = lock.with_lease(ms(900)).lock().unwrap();
    let held = proxy.rule(renewal_of(lock.name()), Then::HoldReply);
    let renewal = held.wait_hit(SOON);
    proxy.wait_fate(&renewal, SOON); // Redis has raised the time to live, but the client does not know
    drop(outer); // from here on the inner lease is all there is
    assert!(ttl_ms(RedisServer::shared(), lock.name()) <= 900);
    held.release();
    assert_eq!(inner.wait_lost(ms(900) + GRACE + SCHEDULING), Some(Loss::Expired));
    assert_eq!(kind_of(inner.unlock()), ErrorKind::Lost(Loss::Expired));
}

#[test]
fn a_late_extension_does_not_outweigh_a_partial_release() {
    let (proxy, client) = rig();
    let lock = client.get_lock(fresh("race"));
    let outer = lock.with_lease(ms(7_000)).lock().unwrap();
    let inner = lock.with_lease(ms(6_000)).lock().unwrap();
    let held = proxy.rule(When::script().containing(lock.name()).containing("77777"), Then::HoldReply);
    let hold = outer.hold().clone();
    thread::scope(|scope| {
        let extending = scope.spawn(|| hold.extend(ms(77_777)));
        let request = held.wait_hit(SOON);
        proxy.wait_fate(&request, SOON);
        drop(inner);
        let left = ttl_ms(RedisServer::shared(), lock.name());
        held.release();
        // Either the hold lasts as long as the client believes, or the call returns an error.
        let outcome = joined(extending);
        let believed = i64::try_from(outer.remaining().as_millis()).unwrap();
        assert!(believed <= left, "{outcome:?}: believed for {believed} ms, in Redis for {left}");
    });
}

#[test]
fn an_extension_that_is_answered_after_the_loss_says_so() {
    let (proxy, client) = rig();
    let lock = client.get_lock(fresh("race"));
    let guard = lock.with_lease(ms(1_000)).lock().unwrap();
    let held = proxy.rule(When::script().containing(lock.name()).containing("77777").always(), Then::HoldReply);
    let hold = guard.hold().clone();
    thread::scope(|scope| {
        let extending = scope.spawn(|| hold.extend(ms(77_777)));
        held.wait_hit(SOON);
        assert_eq!(guard.wait_lost(SOON), Some(Loss::Expired), "the extension is unconfirmed");
        held.release();
        assert_eq!(kind_of(joined(extending)), ErrorKind::Lost(Loss::Expired));
    });
}

#[test]
fn a_release_settles_before_a_renewal_that_is_under_way() {
    let (proxy, client) = rig();
    let lock = client.get_lock(fresh("race"));
    let guard = lock.lock().unwrap();
    let held = proxy.rule(renewal_of(lock.name()), Then::HoldRequest);
    let renewal = held.wait_hit(SOON);
    guard.unlock().unwrap();
    let theirs = elsewhere(|| {
        let other = Client::connect(&RedisServer::shared().url()).unwrap();
        other.get_lock(lock.name()).with_lease(ms(2_000)).owned().lock().unwrap()
    });
    let before = fields(RedisServer::shared(), lock.name());
    held.release();
    proxy.wait_fate(&renewal, SOON);
    assert!(ttl_ms(RedisServer::shared(), lock.name()) <= 2_000, "another request raised the time to live");
    assert_eq!(theirs.wait_lost(SOON), Some(Loss::Expired));
    assert_eq!(before, [(theirs.owner().to_owned(), "1".to_owned())]);
    assert!(lock.try_lock_for(SOON).unwrap().is_some());
}

#[test]
fn force_unlock_leaves_alone_who_was_granted_after_it() {
    let (proxy, client) = rig();
    let lock = client.get_lock(fresh("race"));
    let forced = lock.owned().lock().unwrap();
    let forced_open = When::script().containing(lock.name()).that(|request| request.arguments.len() == 6);
    let held = proxy.rule(forced_open, Then::HoldReply);
    thread::scope(|scope| {
        let forcing = scope.spawn(|| lock.force_unlock().unwrap());
        let request = held.wait_hit(SOON);
        proxy.wait_fate(&request, SOON); // the lock is open, and the caller still does not know
        let guard = lock.try_lock_for(SOON).unwrap().expect("the lock is open");
        held.release();
        assert!(joined(forcing));
        assert_eq!(guard.lost(), None, "the grant came after the forced release");
        assert!(guard.is_held());
        guard.unlock().unwrap();
    });
    assert!(!forced.is_held(), "this hold was forced open");
    drop(forced);
    assert!(!lock.is_locked().unwrap());
}
