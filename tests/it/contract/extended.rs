//! A lease that was extended.

use std::time::{Duration, Instant};

use crossbeam_channel::unbounded;
use lockson::Loss;
use lockson_harness::{RedisServer, eventually};

use super::{for_every_kind, key};
use crate::support::{Notes, SCHEDULING, SOON, brisk, client, ms};

#[test]
fn an_extended_lease_tells_its_loss_at_its_new_end() {
    for_every_kind(|kind| {
        let lock = kind.get_lock(&client(), &kind.fresh());
        let guard = lock.with_lease(ms(1_000)).lock().unwrap();
        let (told, heard) = unbounded();
        guard.on_lost(move |loss| told.send((*loss, Instant::now())).unwrap());
        let extended = Instant::now();
        guard.extend(ms(2_500)).unwrap();
        let (loss, at) = heard.recv_timeout(SOON).expect("the callback is called");
        let after = at.duration_since(extended);
        assert_eq!(loss, Loss::Expired);
        assert!(after >= ms(2_400) && after <= ms(2_500) + SCHEDULING, "{after:?}");
    });
}

#[test]
fn the_observer_hears_of_the_new_end_of_an_extended_lease() {
    for_every_kind(|kind| {
        let notes = Notes::default();
        let client = brisk(RedisServer::shared()).observer(notes.clone()).connect().unwrap();
        let lock = kind.get_lock(&client, &kind.fresh());
        let guard = lock.with_lease(ms(800)).lock().unwrap();
        guard.extend(ms(1_500)).unwrap();
        eventually(SOON, "the observer is told", || notes.losses_of(key(lock.name())) == 1);
        assert_eq!(guard.remaining(), Duration::ZERO);
    });
}
