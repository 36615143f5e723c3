//! What an observer may do in the middle of a call: close the client, take locks.

use std::sync::{Arc, OnceLock};

use crossbeam_channel::unbounded;
use lockson::{Client, Lock};
use lockson_harness::RedisServer;

use crate::support::{Events, SOON, client, fresh};

#[test]
fn an_observer_that_closes_the_client_loses_no_permit() {
    let (name, slot) = (fresh("permits"), Arc::new(OnceLock::<Client>::new()));
    let closes = Arc::clone(&slot);
    let observer = Events::acting(move |_, _| closes.get().into_iter().for_each(Client::close));
    let ours = Client::builder(&RedisServer::shared().url()).observer(observer).connect().unwrap();
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
