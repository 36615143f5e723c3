//! The number of requests that each call takes.

use super::{Kind, for_every_single_kind};
use crate::support::prelude::*;

/// A client with one connection for its callers; the watchdog and the listener have their own connections.
fn with_one_connection() -> (Proxy, Client) {
    let proxy = Proxy::start(RedisServer::shared().address());
    let client = Client::builder(&proxy.url()).max_connections(1).connect().expect("the proxy forwards the request");
    (proxy, client)
}

/// Checks the number of requests of one call on the connection of the callers.
#[track_caller]
fn takes(count: usize, proxy: &Proxy, what: &str, call: impl FnOnce()) {
    let callers = proxy.fitting(&When::script()).first().expect("the lock was taken before").connection;
    let mark = proxy.mark();
    call();
    let sent = proxy.fitting_since(mark, &When::any().on_connection(callers));
    assert_eq!(sent.len(), count, "{what}: {sent:?}");
}

#[test]
fn each_call_is_one_request() {
    for_every_single_kind(|kind| {
        let (proxy, client) = with_one_connection();
        let lock = kind.get_lock(&client, &kind.fresh());
        all_calls(kind, &lock, &|_, call| call()); // from here on the server knows the scripts
        all_calls(kind, &lock, &|what, call| takes(1, &proxy, what, call));
    });
}

/// Makes each call, and hands it over with its name.
fn all_calls(kind: &Kind, lock: &Lock, one: &dyn Fn(&str, &mut dyn FnMut())) {
    let mut guard = None;
    one("try_lock", &mut || guard = lock.try_lock().unwrap());
    if kind.reenters {
        let mut inner = None;
        one("re-entry", &mut || inner = lock.try_lock().unwrap());
        one("inner unlock", &mut || inner.take().unwrap().unlock().unwrap());
    }
    one("busy try_lock", &mut || assert!(lock.owned().try_lock().unwrap().is_none()));
    one("extend", &mut || guard.as_ref().unwrap().extend(SOON * 6).unwrap());
    one("is_locked", &mut || assert!(lock.is_locked().unwrap()));
    one("holder", &mut || assert!(lock.holder().unwrap().is_some()));
    one("remaining_time_to_live", &mut || assert!(lock.remaining_time_to_live().unwrap().is_some()));
    one("unlock", &mut || guard.take().unwrap().unlock().unwrap());
    one("lock", &mut || guard = Some(lock.lock().unwrap()));
    one("drop", &mut || guard = None);
    one("try_lock_for", &mut || guard = lock.try_lock_for(SOON).unwrap());
    one("force_unlock", &mut || assert!(lock.force_unlock().unwrap()));
    assert!(guard.take().unwrap().unlock().is_err());
}

#[test]
fn what_a_holder_asks_of_its_hold_is_no_request() {
    for_every_single_kind(|kind| {
        let (proxy, client) = with_one_connection();
        let lock = kind.get_lock(&client, &kind.fresh());
        let guard = lock.lock().unwrap();
        takes(0, &proxy, "questions to a hold", || {
            assert!(guard.is_held() && !guard.remaining().is_zero() && guard.lost().is_none());
            assert!(lock.is_held_by_current_thread() && lock.hold_count() == 1 && client.held().len() == 1);
            guard.on_lost(|_| ());
            assert_eq!(guard.wait_lost(ms(1)), None);
        });
    });
}

#[test]
fn close_sends_one_request_for_each_hold() {
    for_every_single_kind(|kind| {
        let (proxy, client) = with_one_connection();
        let locks = [(); 3].map(|()| kind.get_lock(&client, &kind.fresh()));
        drop(locks[0].lock().unwrap()); // from here on the server knows the scripts
        let guards = locks.each_ref().map(|lock| lock.owned().lock().unwrap());
        let of_ended_thread = kind.get_lock(&client, &kind.fresh());
        elsewhere(|| of_ended_thread.lock().unwrap().leave_to_unlock());
        takes(4, &proxy, "close", || client.close());
        drop(guards);
    });
}
