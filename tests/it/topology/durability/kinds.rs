//! Every kind that grants: a copy at the replica, or nothing at all.

use std::any::Any;

use lockson::{RedLock, Result};

use super::scene::{Copied, none, one};
use crate::support::prelude::*;

type Held = Option<Box<dyn Any>>;

fn held<T: 'static>(outcome: Result<Option<T>>) -> Result<Held> {
    outcome.map(|guard| guard.map(|guard| Box::new(guard) as Box<dyn Any>))
}

fn taken(lock: &Lock) -> Result<Held> {
    held(lock.owned().try_lock())
}

/// A kind, and how it is taken.
type Row = (&'static str, fn(&Client, &str) -> Result<Held>);

const KINDS: &[Row] = &[
    ("plain", |client, name| taken(&client.get_lock(name))),
    ("non-reentrant", |client, name| taken(&client.get_non_reentrant_lock(name))),
    ("fair", |client, name| taken(&client.get_fair_lock(name))),
    ("fair waiting", |client, name| held(client.get_fair_lock(name).owned().try_lock_for(SOON))),
    ("spin", |client, name| taken(&client.get_spin_lock(name))),
    ("fenced", |client, name| held(client.get_fenced_lock(name).owned().try_lock())),
    ("read", |client, name| taken(&client.get_read_write_lock(name).read())),
    ("write", |client, name| taken(&client.get_read_write_lock(name).write())),
    ("token", |client, name| taken(&client.get_token_lock(name))),
    ("token by transaction", |client, name| {
        let by = lockson::ReleaseBy::Transaction;
        taken(&client.get_token_lock_with(name, TokenOptions::new().with_release_by(by)).with_lease(SOON))
    }),
    ("group", |client, name| taken(&client.get_group_lock(name, ["a", "b"]))),
    ("multi", |client, name| taken(&Lock::multi([1, 2, 3].map(|n| client.get_lock(format!("{name}:{n}")))))),
    ("mixed multi", |client, name| {
        let (plain, fair) = (client.get_lock(format!("{name}:1")), client.get_fair_lock(format!("{name}:2")));
        taken(&Lock::multi([plain, fair, client.get_token_lock(format!("{name}:3"))]))
    }),
    ("permits", |client, name| {
        let semaphore = client.get_permit_expirable_semaphore(name);
        semaphore.set_permits_once(3)?;
        held(semaphore.try_acquire(2))
    }),
    ("leader", |client, name| held(client.get_election(name).candidate("me").try_campaign())),
];

/// What is no hold: counters, and the number of a request.
fn holds(keys: Vec<String>) -> Vec<String> {
    let is_counter = |key: &String| key.contains("token") || key.contains("permit") || key.contains("once");
    keys.into_iter().filter(|key| !is_counter(key)).collect()
}

#[test]
fn every_kind_is_copied_or_given_back() {
    let copied = Copied::start(1);
    let patient = one().within(ms(2_900)); // long enough for a busy machine
    let [client, impatient] =
        [patient, none()].map(|needs| Client::builder(&copied.master.url()).durability(needs).connect().unwrap());
    for (kind, take) in KINDS {
        let name = fresh(&kind.replace(' ', "-"));
        let guard = take(&client, &name).unwrap().expect("it is free");
        let at_master = copied.master.keys();
        assert_eq!(copied.replicas[0].keys(), at_master, "{kind}");
        drop(guard);
        copied.are_in_step();
        copied.replicas[0].pause();
        let error = take(&impatient, &name).map(|_| ()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotDurable, "{kind}: {error}");
        lockson_harness::eventually(SOON, "nothing is held any more", || impatient.held().is_empty());
        if *kind == "permits" {
            let free = || client.get_permit_expirable_semaphore(&name).available().unwrap() == 3;
            lockson_harness::eventually(SOON, "the permits are free", free);
        } else {
            lockson_harness::eventually(SOON, "no key is left", || holds(copied.master.keys()).is_empty());
        }
        copied.replicas[0].resume();
        copied.master.run(&["FLUSHALL"]);
        copied.are_in_step();
    }
}

#[test]
fn a_red_lock_counts_the_servers_whose_replicas_have_it() {
    let nodes = [(); 3].map(|()| Copied::start(1));
    let clients: Vec<Client> = nodes.iter().map(|node| Client::connect(&node.master.url()).unwrap()).collect();
    let name = fresh("red");
    let red = RedLock::new(clients.iter().map(|client| client.get_lock(&name)));
    let red = red.with_rejoin_after(ms(0)).with_node_timeout(ms(1_000)).with_durability(one());
    let none_is_left = || {
        nodes.iter().for_each(|node| {
            // A release that takes longer than the time limit of a node goes on in the background.
            lockson_harness::eventually(SOON, "no vote is left", || node.master.keys().is_empty());
        })
    };
    assert_eq!(red.try_lock().unwrap().expect("all vote").hold().members().len(), 3);
    none_is_left();
    nodes[0].replicas[0].pause();
    let red = red.with_durability(none());
    let (took, guard) = timed(|| red.try_lock().unwrap().expect("two of three vote"));
    assert_eq!(guard.hold().members().len(), 2);
    assert!(took < ms(500) + SCHEDULING, "{took:?}");
    guard.unlock().unwrap();
    none_is_left();
    nodes[1].replicas[0].pause();
    let (took, outcome) = timed(|| kind_of(red.try_lock()));
    assert_eq!(outcome, ErrorKind::Quorum);
    assert!(took < ms(500) + SCHEDULING, "the servers are waited for side by side: {took:?}");
    none_is_left();
}
