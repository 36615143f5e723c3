//! A re-entry of a hold that has ended, or ends while the re-entry is under way.

use std::thread;

use crossbeam_channel::unbounded;
use lockson::{Client, ErrorKind, Loss};
use lockson_harness::RedisServer;
use lockson_harness::proxy::{Proxy, Then, When};

use super::{for_every_reentrant_kind, key};
use crate::support::{SOON, kind_of, ms};

#[test]
fn a_re_entry_after_the_deadline_sends_nothing() {
    for_every_reentrant_kind(|kind| {
        let proxy = Proxy::start(RedisServer::shared().address());
        let lock = kind.get_lock(&Client::connect(&proxy.url()).unwrap(), &kind.fresh());
        let guard = lock.with_lease(ms(300)).lock().unwrap();
        thread::sleep(ms(300)); // no call looks at the hold meanwhile
        let mark = proxy.mark();
        assert_eq!(kind_of(lock.try_lock()), ErrorKind::Lost(Loss::Expired));
        assert_eq!(
            proxy.fitting_since(mark, &When::any().containing(key(lock.name()))).len(),
            0,
            "the request would raise the time to live of an ended hold"
        );
        drop(guard);
    });
}

#[test]
fn a_re_entry_answered_after_the_loss_was_told_is_no_guard() {
    for_every_reentrant_kind(|kind| {
        let proxy = Proxy::start(RedisServer::shared().address());
        let lock = kind.get_lock(&Client::connect(&proxy.url()).unwrap(), &kind.fresh());
        let guard = lock.with_lease(ms(700)).lock().unwrap();
        let hold = guard.hold().clone();
        let (told, heard) = unbounded();
        guard.on_lost(move |loss| told.send(*loss).unwrap());
        let answer = proxy.rule(When::any().containing(key(lock.name())), Then::HoldReply);
        thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(heard.recv_timeout(SOON), Ok(Loss::Expired));
                answer.release();
            });
            assert!(matches!(kind_of(lock.try_lock_for(SOON)), ErrorKind::Lost(_)));
        });
        assert_eq!(answer.hits(), 1);
        assert_eq!(hold.lost(), Some(Loss::Expired));
        drop(guard);
    });
}
