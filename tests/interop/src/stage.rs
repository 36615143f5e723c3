//! The stage of a check: one Redis or a cluster, a Rust peer and a Java peer, and fresh names.

use std::cell::{Cell, OnceCell, RefCell};
use std::collections::HashSet;
use std::thread;
use std::time::Duration;

use lockson_harness::{Peer, RedisServer};

use crate::actor::{Actor, CLIENTS_OF_SERVERS, Object};
use crate::kind::Kind;
use crate::program::{Cast, Seat};
use crate::site::Site;
use crate::starved::Starved;
use crate::subscribed::until_subscribed;
use crate::verdict::Verdict;

/// The number of the client whose holds live for 30 s, so that no hold ends by itself.
pub(crate) const PATIENT: u32 = 0;
/// The number of the client whose holds live for [`BRISK_TTL`].
pub(crate) const BRISK: u32 = 1;
pub(crate) const BRISK_TTL: Duration = Duration::from_secs(1);

/// One lane's stage; several lanes share a site and use different names.
pub(crate) struct Stage<'s> {
    site: Site<'s>,
    lane: usize,
    cast: Cast,
    peers: [RefCell<Peer>; 2],
    /// Started ahead of time, because a JVM takes a second to come up.
    spares: [RefCell<Option<Peer>>; 2],
    /// A connection to each server of the site.
    redis: RefCell<Vec<redis::Connection>>,
    next_name: Cell<u32>,
    /// Servers that know nothing of the first, for locks on independent servers.
    others: OnceCell<[RedisServer; 2]>,
    /// The peers whose clients of these servers are open.
    at_all_servers: RefCell<HashSet<u32>>,
}

impl<'s> Stage<'s> {
    pub(crate) fn new(site: Site<'s>, lane: usize, cast: &Cast) -> Self {
        let stage = Self {
            site,
            lane,
            cast: cast.clone(),
            peers: Seat::BOTH.map(|seat| RefCell::new(Peer::launch(cast.of(seat).command()))),
            spares: [RefCell::new(None), RefCell::new(None)],
            redis: RefCell::new(connections(site)),
            next_name: Cell::new(0),
            others: OnceCell::new(),
            at_all_servers: RefCell::default(),
        };
        Seat::BOTH.iter().for_each(|seat| stage.settle_in(*seat));
        stage
    }

    /// Starts the peers again: after a failed check, a peer may still hold locks or wait.
    pub(crate) fn reset(&self) {
        for seat in Seat::BOTH {
            self.peer(seat).replace(Peer::launch(self.cast.of(seat).command()));
            self.settle_in(seat);
        }
        self.redis.replace(connections(self.site));
    }

    pub(crate) fn peer(&self, seat: Seat) -> &RefCell<Peer> {
        match seat {
            Seat::Rust => &self.peers[0],
            Seat::Java => &self.peers[1],
        }
    }

    /// A peer with a brisk client that the caller may kill, for this object.
    pub(crate) fn victim(&self, seat: Seat, object: &Object) -> RefCell<Peer> {
        let spare = match seat {
            Seat::Rust => &self.spares[0],
            Seat::Java => &self.spares[1],
        };
        let launch = || Peer::launch(self.cast.of(seat).command());
        let mut victim = spare.borrow_mut().take().unwrap_or_else(launch);
        self.open(&mut victim, BRISK);
        *spare.borrow_mut() = Some(launch());
        let victim = RefCell::new(victim);
        self.open_other_servers(&victim, object);
        victim
    }

    pub(crate) fn fresh(&self, what: &str) -> String {
        self.next_name.set(self.next_name.get() + 1);
        format!("{what}-{}-{}", self.lane, self.next_name.get())
    }

    /// A holder of a fresh object, and on the other side the rival that the holder excludes.
    pub(crate) fn pair(&self, kind: &'static Kind, holder: Seat) -> (Actor<'_>, Actor<'_>) {
        self.pair_under(kind, holder, &self.fresh(kind.word))
    }

    /// A holder of the object of this name, and on the other side the rival that the holder excludes.
    pub(crate) fn pair_under(&self, kind: &'static Kind, holder: Seat, name: &str) -> (Actor<'_>, Actor<'_>) {
        let holder = self.actor(holder, &Object::new(kind, name));
        holder.prepare(1);
        let rival = self.actor(holder.seat.other(), &Object::rival_of(kind, name));
        (holder, rival)
    }

    pub(crate) fn actor(&self, seat: Seat, object: &Object) -> Actor<'_> {
        self.open_other_servers(self.peer(seat), object);
        Actor::new(self.peer(seat), seat, object.clone())
    }

    /// Opens the clients of the other servers, once for each peer that needs them.
    fn open_other_servers(&self, peer: &RefCell<Peer>, object: &Object) {
        let mut peer = peer.borrow_mut();
        if !object.is_independent() || !self.at_all_servers.borrow_mut().insert(peer.pid()) {
            return;
        }
        let others = self.others.get_or_init(|| [(); 2].map(|()| RedisServer::start()));
        for (server, further) in others.iter().zip(&CLIENTS_OF_SERVERS[1..]) {
            open_at(&mut peer, Site::One(server), PATIENT + further, None);
            open_at(&mut peer, Site::One(server), BRISK + further, Some(BRISK_TTL));
        }
    }

    /// Waits until Redis lists the waiter for this name, and the waiter has asked again since.
    ///
    /// Redis does not list waiters that poll; for such kinds the function only pauses.
    pub(crate) fn until_waiting(&self, waiter: &Actor<'_>) {
        if !waiter.object.kind.polls {
            let question = self.site.channels();
            let listens = until_subscribed(&mut self.redis.borrow_mut(), &question, &waiter.object.name, SUBSCRIBING);
            let is_sharded = self.site.is_cluster();
            assert!(listens || !is_sharded, "{} did not listen by sharded pub/sub", waiter.seat.name());
        }
        thread::sleep(ASKING_AGAIN);
    }

    /// Runs a check; a failure while the machine kept the check's processes waiting is no verdict, and the check runs
    /// again.
    pub(crate) fn judge(&self, what: &str, check: impl Fn()) -> Verdict {
        for _ in 0..PLAYED_AGAIN {
            let starved = self.starved();
            let verdict = Verdict::of(&check);
            let Verdict::Failed(story) = &verdict else { return verdict };
            let waited = starved.millis();
            self.reset();
            if waited < TOO_BUSY_MS {
                return verdict;
            }
            println!("again   {what}: the processes waited {waited:.0} ms for a processor; {story}");
        }
        let verdict = Verdict::of(&check);
        if matches!(verdict, Verdict::Failed(_)) {
            self.reset();
        }
        verdict
    }

    fn starved(&self) -> Starved {
        let peers = self.peers.iter().map(|peer| peer.borrow().pid());
        Starved::watch(peers.chain(self.site.servers().iter().map(RedisServer::pid)).collect())
    }

    /// Asks Redis itself about a key.
    pub(crate) fn redis<T: redis::FromRedisValue>(&self, key: &str, command: &str) -> T {
        let connection = &mut self.redis.borrow_mut()[self.site.place_of(key)];
        redis::cmd(command).arg(key).query(connection).expect("Redis answers")
    }

    pub(crate) fn is_rehearsal(&self) -> bool {
        self.cast.is_rehearsal()
    }

    fn settle_in(&self, seat: Seat) {
        let mut peer = self.peer(seat).borrow_mut();
        self.open(&mut peer, PATIENT);
        self.open(&mut peer, BRISK);
    }

    fn open(&self, peer: &mut Peer, client: u32) {
        open_at(peer, self.site, client, (client == BRISK).then_some(BRISK_TTL));
    }
}

fn connections(site: Site<'_>) -> Vec<redis::Connection> {
    site.servers().iter().map(RedisServer::connection).collect()
}

/// Opens a client at a site; its holds live for `ttl`.
pub(crate) fn open_at(peer: &mut Peer, site: Site<'_>, client: u32, ttl: Option<Duration>) {
    let options = site.options();
    let watchdog = ttl.map_or(String::new(), |ttl| format!(" watchdog_ms={}", ttl.as_millis()));
    peer.ask(&format!("open client={client} {options}{watchdog}")).expect_ok();
}

/// The bound of a subscription; a waiter without a subscription has been granted faster.
const SUBSCRIBING: Duration = Duration::from_millis(500);
/// From a confirmed subscription to the end of the request that follows.
const ASKING_AGAIN: Duration = Duration::from_millis(40);
/// A failed check proves nothing if the check's processes waited longer than this for processors.
pub(crate) const TOO_BUSY_MS: f64 = 300.0;
/// How often a check is repeated at most for this reason.
pub(crate) const PLAYED_AGAIN: u32 = 2;
