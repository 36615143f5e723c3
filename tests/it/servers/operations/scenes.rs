//! The states in which the page's commands are tested, and the required effects.

use lockson::Hold;
use lockson_harness::RedisServerBuilder;

use crate::support::prelude::*;

/// A state of a lock, and the required effect of the commands.
pub(crate) struct Scene {
    pub(crate) name: &'static str,
    /// The page shows some lines of many.
    pub(crate) is_partial: bool,
    pub(crate) play: fn(&House, &mut Commands<'_>),
}

/// A topology of the page.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    One,
    Sentinels,
    Cluster,
}

/// One server, a master with a sentinel, or a cluster of one master, behind a proxy.
pub(crate) struct House {
    rig: Rig,
    place: Place,
    sentinel: Option<RedisServer>,
}

impl House {
    pub(crate) fn start(place: Place) -> House {
        let cluster = (place == Place::Cluster).then_some("cluster-enabled yes");
        let rig = Rig::around(cluster.into_iter().fold(RedisServer::builder(), RedisServerBuilder::config).start());
        // Clients are sent to the proxy, as on one server.
        let port = rig.proxy.port();
        let sentinel = (place == Place::Sentinels).then(|| {
            let watch = format!("sentinel monitor mymaster 127.0.0.1 {port} 1");
            RedisServer::builder().argument("--sentinel").config(watch).start()
        });
        if cluster.is_some() {
            rig.server.run(&["CONFIG", "SET", "cluster-announce-port", &port.to_string()]);
            rig.server.run(&["CLUSTER", "ADDSLOTSRANGE", "0", "16383"]);
            let state = || rig.server.query::<String>(&["CLUSTER", "INFO"]);
            eventually(SOON, "the cluster is well", || state().contains("cluster_state:ok"));
        }
        House { rig, place, sentinel }
    }

    pub(crate) fn server(&self) -> &RedisServer {
        &self.rig.server
    }

    fn url(&self) -> String {
        let url = self.rig.proxy.url();
        match &self.sentinel {
            Some(sentinel) => format!("redis+sentinel://{}/mymaster", sentinel.address()),
            None if self.place == Place::Cluster => url.replace("redis://", "redis+cluster://"),
            None => url,
        }
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder(&self.url())
    }

    fn client(&self) -> Client {
        self.builder().connect().unwrap()
    }

    fn channels(&self) -> Vec<String> {
        let which = if self.place == Place::Cluster { "SHARDCHANNELS" } else { "CHANNELS" };
        self.server().query(&["PUBSUB", which])
    }
}

/// Runs the commands of a block.
type Commands<'a> = dyn FnMut(&RedisServer, &Owners) + 'a;

/// The owners of this run in place of the page's owners.
#[derive(Debug)]
pub(crate) struct Owners {
    holder: String,
    other: String,
    /// The id of a permit.
    permit: String,
}

impl Owners {
    fn new(holder: &str, other: &str) -> Owners {
        Owners { holder: holder.to_owned(), other: other.to_owned(), permit: String::new() }
    }

    pub(crate) fn put_into(&self, word: &str) -> String {
        let client = |owner: &str| owner.split(':').next().unwrap_or_default().to_owned();
        let word = word
            .replace(PERMIT_OF_THE_PAGE, &self.permit)
            .replace(HOLDER_OF_THE_PAGE, &self.holder)
            .replace(OTHER_OF_THE_PAGE, &self.other);
        let word = word.replace(&client(HOLDER_OF_THE_PAGE), &client(&self.holder));
        word.replace("d57e342e-f1e6-4b24", client(&self.holder).get(..18).unwrap_or_default())
    }
}

pub(crate) const SCENES: &[Scene] = &[
    Scene { name: "plain lock held twice", play: plain_held_twice, ..WHOLE },
    Scene { name: "plain lock without time to live", play: persisted, ..WHOLE },
    Scene {
        name: "plain lock with a waiter",
        play: |house, run| waited_for(house, |c| c.get_lock(NAME), run),
        ..WHOLE
    },
    Scene { name: "plain lock to be freed", play: |house, run| freed(house, |c| c.get_lock(NAME), true, run), ..WHOLE },
    Scene {
        name: "any lock to be deleted",
        play: |house, run| freed(house, |c| c.get_fair_lock(NAME), false, run),
        ..WHOLE
    },
    Scene {
        name: "fenced lock held",
        play: |house, run| held(house, |c| c.get_fenced_lock(NAME).into(), run),
        ..WHOLE
    },
    Scene { name: "token lock held", play: |house, run| held(house, |c| c.get_token_lock(NAME), run), ..WHOLE },
    Scene {
        name: "token lock to be freed",
        play: |house, run| freed(house, |c| c.get_token_lock(NAME), false, run),
        ..WHOLE
    },
    Scene {
        name: "fair lock with a waiter",
        play: |house, run| waited_for(house, |c| c.get_fair_lock(NAME), run),
        ..WHOLE
    },
    Scene {
        name: "fair lock to be freed",
        play: |house, run| freed(house, |c| c.get_fair_lock(NAME), true, run),
        ..WHOLE
    },
    Scene { name: "fair lock with a dead waiter", play: dead_waiter, ..WHOLE },
    Scene { name: "read-write lock held by a writer that reads", play: writer_that_reads, ..WHOLE },
    Scene { name: "read-write lock held by two readers", play: two_readers, ..WHOLE },
    Scene { name: "write lock with a waiter", play: |house, run| waited_for(house, write_lock, run), ..WHOLE },
    Scene { name: "write lock to be freed", play: |house, run| freed(house, write_lock, true, run), ..WHOLE },
    Scene { name: "readers to be freed", play: readers_freed, ..WHOLE },
    Scene { name: "semaphore with a waiter", play: semaphore_awaited, ..WHOLE },
    Scene { name: "latch with a waiter", play: latch_awaited, ..WHOLE },
    Scene { name: "permit to be freed", play: permit_freed, ..WHOLE },
    Scene { name: "value of a group to be freed", play: |house, run| freed(house, value, true, run), ..WHOLE },
    Scene { name: "leader to be deposed", play: leader_deposed, ..WHOLE },
    Scene { name: "a client that holds and waits", play: connections, ..WHOLE },
    Scene { name: "a server that was flushed", play: flushed, is_partial: true },
];

const WHOLE: Scene = Scene { name: "", is_partial: false, play: |_, _| {} };

fn plain_held_twice(house: &House, run: &mut Commands<'_>) {
    let client = house.client();
    let lock = client.get_lock(NAME);
    let (outer, _inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    run(house.server(), &Owners::new(outer.owner(), ""));
    assert!(outer.is_held());
}

fn held(house: &House, lock: fn(&Client) -> Lock, run: &mut Commands<'_>) {
    let client = house.client();
    let guard = lock(&client).lock().unwrap();
    run(house.server(), &Owners::new(guard.owner(), ""));
    assert!(guard.is_held());
    guard.unlock().unwrap();
}

fn persisted(house: &House, run: &mut Commands<'_>) {
    let client = house.builder().watchdog(SOON, ms(1_000)).connect().unwrap();
    let guard = client.get_lock(NAME).lock().unwrap();
    house.server().run(&["PERSIST", NAME]);
    run(house.server(), &Owners::new(guard.owner(), ""));
    // As the page says of a watched hold.
    eventually(SOON, "the lock has a time to live again", || ttl_ms(house.server(), NAME) > 0);
    assert!(guard.is_held());
}

fn write_lock(client: &Client) -> Lock {
    client.get_read_write_lock(NAME).write()
}

/// A lock with a holder and a waiter.
fn waited_for(house: &House, lock: fn(&Client) -> Lock, run: &mut Commands<'_>) {
    let (holding, waiting) = (house.client(), house.client());
    let guard = lock(&holding).owned().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(lock(&waiting).lock().unwrap()));
        await_sleep(house, &waiting);
        let listed = waiting.waiting();
        run(house.server(), &Owners::new(guard.owner(), listed[0].owner()));
        assert!(guard.is_held(), "a look changes nothing");
        guard.unlock().unwrap();
        joined(waiter);
    });
}

/// A lock with a waiter that must be granted. With `told`, a message wakes the waiter before its own next request.
fn freed(house: &House, lock: fn(&Client) -> Lock, told: bool, run: &mut Commands<'_>) {
    let (holding, waiting) = (house.client(), house.client());
    let guard = lock(&holding).owned().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = lock(&waiting).try_lock_for(SOON).unwrap().expect("the lock is free");
            let asked = house.rig.proxy.fitting(&When::script().containing(owner(guard.hold())));
            let [.., before, granted] = &asked[..] else { panic!("the client did not wait") };
            assert!(!told || granted.at - before.at < ms(950), "no message arrived");
        });
        await_sleep(house, &waiting);
        run(house.server(), &Owners::new(owner(guard.hold()), ""));
        joined(waiter);
    });
}

/// The owner of a hold, or of the hold on the value of a group.
fn owner(hold: &Hold) -> &str {
    hold.members()[0].owner()
}

fn value(client: &Client) -> Lock {
    client.get_group_lock(NAME, ["student:001"])
}

/// The permit that the commands add goes to the waiter.
fn semaphore_awaited(house: &House, run: &mut Commands<'_>) {
    let (client, waiting) = (house.client(), house.client());
    client.get_semaphore(NAME).set_permits_once(0).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waiting.get_semaphore(NAME).try_acquire_for(1, SOON).unwrap().is_some());
        eventually(SOON, "it waits", || !house.channels().is_empty());
        run(house.server(), &Owners::new("", ""));
        assert!(joined(waiter));
    });
}

/// The commands open the latch.
fn latch_awaited(house: &House, run: &mut Commands<'_>) {
    let (client, waiting) = (house.client(), house.client());
    client.get_count_down_latch(NAME).set_count_once(2).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| waiting.get_count_down_latch(NAME).wait_for(SOON).unwrap());
        eventually(SOON, "it waits", || !house.channels().is_empty());
        run(house.server(), &Owners::new("", ""));
        assert!(joined(waiter));
    });
}

fn permit_freed(house: &House, run: &mut Commands<'_>) {
    let client = house.client();
    let calls = client.get_permit_expirable_semaphore(NAME);
    calls.set_permits(1).unwrap();
    let permit = calls.acquire(1).unwrap();
    let id = permit.ids()[0].to_string();
    assert_eq!(id[..16], client.id().replace('-', "")[..16], "a permit leads to its client");
    run(house.server(), &Owners { permit: id, ..Owners::new(client.id(), "") });
    assert_eq!(permit.wait_lost(SOON), Some(Loss::Gone));
    assert_eq!(calls.available().unwrap(), 1);
}

fn leader_deposed(house: &House, run: &mut Commands<'_>) {
    let (leading, waiting) = (house.client(), house.client());
    let leadership = leading.get_election(NAME).candidate("host-7").campaign().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(waiting.get_election(NAME).candidate("host-8").campaign().unwrap()));
        await_sleep(house, &waiting);
        run(house.server(), &Owners::new(leadership.hold().owner(), ""));
        joined(waiter);
    });
    assert!(leadership.wait_lost(SOON).is_some());
}

fn readers_freed(house: &House, run: &mut Commands<'_>) {
    let (holding, waiting) = (house.client(), house.client());
    let _readers = [(); 2].map(|()| holding.get_read_write_lock(NAME).read().owned().lock().unwrap());
    thread::scope(|scope| {
        let waiter = scope.spawn(|| assert!(write_lock(&waiting).try_lock_for(SOON).unwrap().is_some()));
        await_sleep(house, &waiting);
        run(house.server(), &Owners::new("", ""));
        joined(waiter);
    });
}

fn writer_that_reads(house: &House, run: &mut Commands<'_>) {
    let client = house.client();
    let lock = client.get_read_write_lock(NAME);
    let (writing, _reading) = (lock.write().lock().unwrap(), lock.read().lock().unwrap());
    run(house.server(), &Owners::new(writing.owner(), ""));
}

fn two_readers(house: &House, run: &mut Commands<'_>) {
    let clients = [(); 2].map(|()| house.client());
    let [one, other] = clients.each_ref().map(|client| client.get_read_write_lock(NAME).read().lock().unwrap());
    run(house.server(), &Owners::new(one.owner(), other.owner()));
}

/// The first of two waiters was killed; after the commands, the second waiter is first.
fn dead_waiter(house: &House, run: &mut Commands<'_>) {
    let (holding, waiting) = (house.client(), house.client());
    let guard = holding.get_fair_lock(NAME).owned().lock().unwrap();
    let queue = || house.server().query::<Vec<String>>(&["LRANGE", &prefixed("redisson_lock_queue", NAME), "0", "-1"]);
    let mut peer = open_peer(&format!("address={} client_name=dead", house.url()));
    let _unanswered = peer.send(&format!("lock kind=fair name={}", crate::support::encode(NAME)));
    eventually(SOON, "it waits", || queue().len() == 1);
    peer.kill();
    let dead = queue().remove(0);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(waiting.get_fair_lock(NAME).lock().unwrap()));
        eventually(SOON, "another one waits behind", || queue().len() == 2 && !waiting.waiting().is_empty());
        run(house.server(), &Owners::new(guard.owner(), &dead));
        assert_eq!(queue(), [waiting.waiting()[0].owner()]);
        guard.unlock().unwrap();
        joined(waiter);
    });
}

fn connections(house: &House, run: &mut Commands<'_>) {
    let client = house.builder().client_name("orders").watchdog(SOON, TICK).connect().unwrap();
    let guard = client.get_lock(NAME).owned().lock().unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| drop(client.get_lock(NAME).lock().unwrap()));
        let with = |flags: &str| {
            let clients = house.server().clients();
            clients.iter().filter(|client| client["name"].starts_with("orders:") && client["flags"] == flags).count()
        };
        eventually(SOON, "the client listens and watches", || with("N") >= 1 && with("t") == 1 && with("P") == 1);
        run(house.server(), &Owners::new(guard.owner(), ""));
        guard.unlock().unwrap();
        joined(waiter);
    });
}

fn flushed(house: &House, run: &mut Commands<'_>) {
    house.server().run(&["FLUSHALL"]);
    run(house.server(), &Owners::new("", ""));
}

/// Waits until this client's thread sleeps until a message, or until the end of a pause.
fn await_sleep(house: &House, waiting: &Client) {
    eventually(SOON, "it waits", || !waiting.waiting().is_empty());
    let owner = waiting.waiting()[0].owner().to_owned();
    let listens = || !house.channels().is_empty();
    let asked = || house.rig.proxy.count(&When::script().containing(&*owner)) >= 2;
    let pauses = || waiting.waiting().iter().any(|waiter| waiter.waited() > Duration::from_millis(200));
    eventually(SOON, "it sleeps", || asked() && (listens() || pauses()));
}

const NAME: &str = "orders:42";
/// The owners in the page's text.
const HOLDER_OF_THE_PAGE: &str = "d57e342e-f1e6-4b24-b3b6-7551a58aea46:7.19";
const PERMIT_OF_THE_PAGE: &str = "d57e342ef1e64b240000000000130000";
const OTHER_OF_THE_PAGE: &str = "0f3c8a2b-7d51-4a39-9a55-2f8f4f3f1d10:4.23";
