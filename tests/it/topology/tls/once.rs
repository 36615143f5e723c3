//! Every request has its effect once, wherever the bytes of TLS break off.

use lockson_harness::proxy::AtByte;

use super::Secured;
use crate::support::prelude::*;

const NAME: &str = "once";

#[test]
fn an_acquire_cut_at_bytes_of_tls_takes_the_lock_once() {
    acquire(7);
}

#[test]
fn a_release_cut_at_bytes_of_tls_opens_the_lock_once() {
    release(7);
}

#[test]
#[ignore = "make topology"]
fn an_acquire_cut_at_every_byte_of_tls_takes_the_lock_once() {
    acquire(1);
}

#[test]
#[ignore = "make topology"]
fn a_release_cut_at_every_byte_of_tls_opens_the_lock_once() {
    release(1);
}

#[test]
fn an_answer_that_stops_inside_a_record_is_repeated_in_time() {
    let rig = Rig::start();
    let (_, reply) = rig.lengths(&mut || rig.take().unlock().unwrap());
    for bytes in [0, 4, 5, reply / 2 - 1] {
        rig.limit(Direction::Replies, bytes, AtByte::Hold);
        let guard = rig.client.get_lock(NAME).try_lock_for(SOON).unwrap().expect("no other client wants the lock");
        rig.is_held_by(&guard);
        guard.unlock().unwrap();
        rig.proxy.heal();
        rig.is_empty();
    }
}

fn acquire(step: usize) {
    let rig = Rig::start();
    let mut guard = None;
    let lengths = rig.lengths(&mut || guard = Some(rig.take()));
    drop(guard);
    rig.at_bytes(
        lengths,
        step,
        || (),
        |()| {
            let guard = rig.take();
            rig.is_held_by(&guard);
            rig.proxy.heal();
            guard.unlock().unwrap();
            rig.is_empty();
        },
    );
}

fn release(step: usize) {
    let rig = Rig::start();
    let mut guard = Some(rig.take());
    let lengths = rig.lengths(&mut || guard.take().unwrap().unlock().unwrap());
    rig.server().reset_counters();
    let points = rig.at_bytes(
        lengths,
        step,
        || rig.take(),
        |guard| {
            guard.unlock().unwrap();
            rig.is_empty();
        },
    );
    assert_eq!(rig.server().calls_of("publish"), points, "each release is announced once");
}

/// A client with one connection, through a proxy.
struct Rig {
    secured: Secured,
    proxy: Proxy,
    client: Client,
}

impl Rig {
    fn start() -> Rig {
        let secured = Secured::start();
        let (proxy, builder) = secured.proxied();
        let client = builder.max_connections(1).command_timeout(ms(3_000)).connect().unwrap();
        let rig = Rig { secured, proxy, client };
        rig.take().unlock().unwrap(); // the server knows the scripts from now on
        rig
    }

    fn server(&self) -> &lockson_harness::RedisServer {
        &self.secured.server
    }

    fn take(&self) -> Guard {
        self.client.get_lock(NAME).try_lock_for(SOON).unwrap().expect("no other client wants the lock")
    }

    /// The bytes of one undisturbed request and its reply.
    fn lengths(&self, act: &mut dyn FnMut()) -> (usize, usize) {
        let passed = || {
            // The later ones are those of the watchdog.
            let all = self.proxy.connections();
            let first = all.iter().min_by_key(|connection| connection.index).expect("one is open");
            (first.opaque_requests, first.opaque_replies)
        };
        let before = passed();
        act();
        let after = passed();
        (after.0 - before.0, after.1 - before.1)
    }

    /// Limits the bytes of each open connection: the one for requests, and that of the watchdog, which opens one when a
    /// hold has lived for a while.
    fn limit(&self, direction: Direction, bytes: usize, then: AtByte) {
        for connection in self.proxy.connections().into_iter().filter(|connection| connection.client_open) {
            self.proxy.limit_bytes(Scope::Connection(connection.index), direction, bytes, then);
        }
    }

    /// Cuts the connection at each `step`th byte of the request and of the reply, and around their ends. Returns the
    /// number of cuts.
    fn at_bytes<T>(
        &self,
        (request, reply): (usize, usize),
        step: usize,
        before: impl Fn() -> T,
        act: impl Fn(T),
    ) -> u64 {
        let places = |length: usize| (0..=length).filter(move |at| at % step == 0 || length - at < 2);
        let requests = places(request).map(|at| (Direction::Requests, at));
        let cuts: Vec<_> = requests.chain(places(reply).map(|at| (Direction::Replies, at))).collect();
        for (direction, at) in &cuts {
            let prepared = before();
            let killed = self.server().calls_of("client|kill");
            self.limit(*direction, *at, AtByte::Cut);
            act(prepared);
            // The proxy took the request off the client, so the client cannot know how much of it arrived.
            let is_whole = (*direction, *at) == (Direction::Replies, reply);
            let fences = self.server().calls_of("client|kill") - killed;
            assert_eq!(fences, u64::from(!is_whole), "{direction:?} cut after {at} of {request} and {reply} bytes");
        }
        cuts.len() as u64
    }

    #[track_caller]
    fn is_held_by(&self, guard: &Guard) {
        assert_eq!(fields(self.server(), NAME), [(guard.owner().to_owned(), "1".to_owned())]);
    }

    #[track_caller]
    fn is_empty(&self) {
        assert_eq!(self.server().keys(), Vec::<String>::new());
    }
}
