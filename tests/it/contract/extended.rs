//! A lease that was extended.

use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use lockson::Loss;
use lockson_harness::{RedisServer, eventually};

use super::{for_every_kind, key};
use crate::support::{Notes, SCHEDULING, SOON, brisk, ms};

#[test]
fn an_extended_lease_tells_its_loss_at_its_new_end() {
    for_every_kind(|kind| {
        let notes = Notes::default();
        let client = brisk(RedisServer::shared()).observer(notes.clone()).connect().unwrap();
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
