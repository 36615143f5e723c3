//! A wait that is cancelled while a request is under way.

use std::thread;

use lockson::{Cancel, Client, ErrorKind};
use lockson_harness::proxy::{Proxy, Then, When};
use lockson_harness::{RedisServer, eventually};

use super::{for_every_kind, key};
use crate::support::{SOON, joined, ms, ttl_ms};

#[test]
fn a_request_of_a_cancelled_wait_leaves_no_lock_behind() {
    for_every_kind(|kind| {
        let server = RedisServer::shared();
        let proxy = Proxy::start(server.address());
        let client = Client::builder(&proxy.url()).command_timeout(ms(2_000)).connect().unwrap();
        let lock = kind.get_lock(&client, &kind.fresh());
        drop(lock.lock().unwrap()); // from here on the scripts are known
        let held = proxy.rule(When::any().containing(key(lock.name())), Then::HoldRequest);
        let stop = Cancel::new();
        thread::scope(|scope| {
            let waiting = lock.with_cancel(&stop);
            let waiter = scope.spawn(move || waiting.lock().map(drop).unwrap_err().kind());
            let original = held.wait_hit(SOON);
            stop.cancel();
            assert!(matches!(joined(waiter), ErrorKind::Cancelled | ErrorKind::Unknown));
            held.release();
            proxy.wait_fate(&original, SOON);
            eventually(SOON, "the granted lock is released", || ttl_ms(server, key(lock.name())) == -2);
        });
    });
}
