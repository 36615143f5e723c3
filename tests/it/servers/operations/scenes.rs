//! The states in which the page's commands are tested, and the required effects.

use std::thread;
use std::time::Duration;

use lockson::{Client, Lock};
use lockson_harness::proxy::When;
use lockson_harness::{RedisServer, eventually};

use crate::support::faults::Rig;
use crate::support::{Peer, SOON, TICK, joined, ms, prefixed, ttl_ms};

/// A state of a lock, and the required effect of the commands.
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    /// The page shows some lines of many.
    pub(crate) is_partial: bool,
    pub(crate) play: fn(&mut Commands<'_>),
}

/// Runs the commands of a block.
type Commands<'a> = dyn FnMut(&RedisServer, &Owners) + 'a;

/// The owners of this run in place of the page's owners.
#[derive(Debug)]
pub(crate) struct Owners {
    holder: String,
    other: String,
}

impl Owners {
    fn new(holder: &str, other: &str) -> Owners {
        Owners { holder: holder.to_owned(), other: other.to_owned() }
    }

    pub(crate) fn put_into(&self, word: &str) -> String {
        let client = |owner: &str| owner.split(':').next().unwrap_or_default().to_owned();
        let word = word.replace(HOLDER_OF_THE_PAGE, &self.holder).replace(OTHER_OF_THE_PAGE, &self.other);
        word.replace(&client(HOLDER_OF_THE_PAGE), &client(&self.holder))
    }
}

pub(crate) const SCENES: &[Scene] = &[
    Scene { name: "plain lock held twice", play: plain_held_twice, ..WHOLE },
    Scene { name: "plain lock without time to live", play: persisted, ..WHOLE },
    Scene { name: "plain lock with a waiter", play: |run| waited_for(|c| c.get_lock(NAME), run), ..WHOLE },
    Scene { name: "plain lock to be freed", play: |run| freed(|c| c.get_lock(NAME), true, run), ..WHOLE },
    Scene { name: "any lock to be deleted", play: |run| freed(|c| c.get_fair_lock(NAME), false, run), ..WHOLE },
    Scene { name: "fenced lock held", play: |run| held(|c| c.get_fenced_lock(NAME).into(), run), ..WHOLE },
    Scene { name: "token lock held", play: |run| held(|c| c.get_token_lock(NAME), run), ..WHOLE },
    Scene { name: "token lock to be freed", play: |run| freed(|c| c.get_token_lock(NAME), false, run), ..WHOLE },
    Scene { name: "fair lock with a waiter", play: |run| waited_for(|c| c.get_fair_lock(NAME), run), ..WHOLE },
    Scene { name: "fair lock to be freed", play: |run| freed(|c| c.get_fair_lock(NAME), true, run), ..WHOLE },
    Scene { name: "fair lock with a dead waiter", play: dead_waiter, ..WHOLE },
    Scene { name: "read-write lock held by a writer that reads", play: writer_that_reads, ..WHOLE },
    Scene { name: "read-write lock held by two readers", play: two_readers, ..WHOLE },
    Scene { name: "write lock with a waiter", play: |run| waited_for(write_lock, run), ..WHOLE },
    Scene { name: "write lock to be freed", play: |run| freed(write_lock, true, run), ..WHOLE },
    Scene { name: "readers to be freed", play: readers_freed, ..WHOLE },
    Scene { name: "a client that holds and waits", play: connections, ..WHOLE },
    Scene { name: "a server that was flushed", play: flushed, is_partial: true },
];

const WHOLE: Scene = Scene { name: "", is_partial: false, play: |_| {} };

fn plain_held_twice(run: &mut Commands<'_>) {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let lock = client.get_lock(NAME);
    let (outer, _inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    run(&server, &Owners::new(outer.owner(), ""));
    assert!(outer.is_held());
}

fn held(lock: fn(&Client) -> Lock, run: &mut Commands<'_>) {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let guard = lock(&client).lock().unwrap();
    run(&server, &Owners::new(guard.owner(), ""));
    assert!(guard.is_held());
    guard.unlock().unwrap();
}

fn persisted(run: &mut Commands<'_>) {
    let server = RedisServer::start();
    let client = Client::builder(&server.url()).watchdog(SOON, ms(1_000)).connect().unwrap();
    let guard = client.get_lock(NAME).lock().unwrap();
    server.run(&["PERSIST", NAME]);
    run(&server, &Owners::new(guard.owner(), ""));
    // As the page says of a watched hold.
    eventually(SOON, "the lock has a time to live again", || ttl_ms(&server, NAME) > 0);
    assert!(guard.is_held());
}

fn write_lock(client: &Client) -> Lock {
    client.get_read_write_lock(NAME).get_write_lock()
}

/// A lock with a holder and a waiter.
fn waited_for(lock: fn(&Client) -> Lock, run: &mut Commands<'_>) {
    let rig = Rig::start();
    let (holding, waiting) = (rig.direct(), rig.client());
    let guard = lock(&holding).owned().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(lock(&waiting).lock().unwrap()));
        await_sleep(&rig, &waiting);
        let listed = waiting.waiting();
        run(&rig.server, &Owners::new(guard.owner(), listed[0].owner()));
        assert!(guard.is_held(), "a look changes nothing");
        guard.unlock().unwrap();
        joined(waiter);
    });
}

/// A lock with a waiter that must be granted. With `told`, a message wakes the waiter before its own next request.
fn freed(lock: fn(&Client) -> Lock, told: bool, run: &mut Commands<'_>) {
    let rig = Rig::start();
    let (holding, waiting) = (rig.direct(), rig.client());
    let guard = lock(&holding).owned().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock(&waiting).try_lock_for(SOON).unwrap().expect("the lock is free");
            let asked = rig.proxy.fitting(&When::script().containing(guard.owner()));
            let [.., before, granted] = &asked[..] else { panic!("the client did not wait") };
            assert!(!told || granted.at - before.at < ms(950), "no message arrived");
        });
        await_sleep(&rig, &waiting);
        run(&rig.server, &Owners::new(guard.owner(), ""));
        joined(waiter);
    });
}

fn readers_freed(run: &mut Commands<'_>) {
    let rig = Rig::start();
    let (holding, waiting) = (rig.direct(), rig.client());
    let _readers = [(); 2].map(|()| holding.get_read_write_lock(NAME).get_read_lock().owned().lock().unwrap());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| assert!(write_lock(&waiting).try_lock_for(SOON).unwrap().is_some()));
        await_sleep(&rig, &waiting);
        run(&rig.server, &Owners::new("", ""));
        joined(waiter);
    });
}

fn writer_that_reads(run: &mut Commands<'_>) {
    let server = RedisServer::start();
    let client = Client::connect(&server.url()).unwrap();
    let lock = client.get_read_write_lock(NAME);
    let (writing, _reading) = (lock.get_write_lock().lock().unwrap(), lock.get_read_lock().lock().unwrap());
    run(&server, &Owners::new(writing.owner(), ""));
}

fn two_readers(run: &mut Commands<'_>) {
    let server = RedisServer::start();
    let clients = [(); 2].map(|()| Client::connect(&server.url()).unwrap());
    let [one, other] =
        clients.each_ref().map(|client| client.get_read_write_lock(NAME).get_read_lock().lock().unwrap());
    run(&server, &Owners::new(one.owner(), other.owner()));
}

/// The first of two waiters was killed; after the commands, the second waiter is first.
fn dead_waiter(run: &mut Commands<'_>) {
    let rig = Rig::start();
    let (holding, waiting) = (rig.direct(), rig.client());
    let guard = holding.get_fair_lock(NAME).owned().lock().unwrap();
    let queue = || rig.server.query::<Vec<String>>(&["LRANGE", &prefixed("redisson_lock_queue", NAME), "0", "-1"]);
    let mut peer = Peer::open(&format!("address={} client_name=dead", rig.server.url()));
    peer.send(&format!("lock kind=fair name={}", crate::support::encode(NAME)));
    eventually(SOON, "it waits", || queue().len() == 1);
    peer.kill();
    let dead = queue().remove(0);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(waiting.get_fair_lock(NAME).lock().unwrap()));
        eventually(SOON, "another one waits behind", || queue().len() == 2 && !waiting.waiting().is_empty());
        run(&rig.server, &Owners::new(guard.owner(), &dead));
        assert_eq!(queue(), [waiting.waiting()[0].owner()]);
        guard.unlock().unwrap();
        joined(waiter);
    });
}

fn connections(run: &mut Commands<'_>) {
    let server = RedisServer::start();
    let builder = Client::builder(&server.url()).client_name("orders").watchdog(SOON, TICK);
    let client = builder.connect().unwrap();
    let guard = client.get_lock(NAME).owned().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(client.get_lock(NAME).lock().unwrap()));
        let with = |flags: &str| {
            let clients = server.clients();
            clients.iter().filter(|client| client["name"].starts_with("orders:") && client["flags"] == flags).count()
        };
        eventually(SOON, "the client listens and watches", || with("N") >= 1 && with("t") == 1 && with("P") == 1);
        run(&server, &Owners::new(guard.owner(), ""));
        guard.unlock().unwrap();
        joined(waiter);
    });
}

fn flushed(run: &mut Commands<'_>) {
    let server = RedisServer::start();
    server.run(&["FLUSHALL"]);
    run(&server, &Owners::new("", ""));
}

/// Waits until this client's thread sleeps until a message, or until the end of a pause.
fn await_sleep(rig: &Rig, waiting: &Client) {
    eventually(SOON, "it waits", || !waiting.waiting().is_empty());
    let owner = waiting.waiting()[0].owner().to_owned();
    let listens = || !rig.server.channels().is_empty();
    let asked = || rig.proxy.count(&When::script().containing(&*owner)) >= 2;
    let pauses = || waiting.waiting().iter().any(|waiter| waiter.waited() > Duration::from_millis(200));
    eventually(SOON, "it sleeps", || asked() && (listens() || pauses()));
}

const NAME: &str = "orders:42";
/// The owners in the page's text.
const HOLDER_OF_THE_PAGE: &str = "d57e342e-f1e6-4b24-b3b6-7551a58aea46:7.19";
const OTHER_OF_THE_PAGE: &str = "0f3c8a2b-7d51-4a39-9a55-2f8f4f3f1d10:4.23";
