//! Red locks: most of several locks on independent servers.

mod dead;
mod late;
mod members;

use lockson::RedLock;

use crate::support::prelude::*;

const NODE: Duration = Duration::from_millis(200);

struct Nodes {
    servers: Vec<RedisServer>,
    clients: Vec<Client>,
}

impl Nodes {
    fn start(count: usize) -> Self {
        let servers: Vec<_> = (0..count).map(|_| RedisServer::start()).collect();
        let clients = Self::clients(&servers);
        Self { servers, clients }
    }

    fn observed(&self, events: &Events) -> Vec<Client> {
        let builder = |server: &RedisServer| Client::builder(&server.url()).observer(events.clone());
        self.servers.iter().map(|server| builder(server).connect_lazily().unwrap()).collect()
    }

    fn clients(servers: &[RedisServer]) -> Vec<Client> {
        servers.iter().map(|server| Client::builder(&server.url()).connect_lazily().unwrap()).collect()
    }

    fn lock(&self, name: &str) -> RedLock {
        red(&self.clients, name)
    }

    fn held(&self, name: &str) -> usize {
        self.servers.iter().filter(|server| server.is_running() && server.query::<i64>(&["EXISTS", name]) == 1).count()
    }

    /// Waits until no server has a key. Cleanups in the background need a moment after a fault.
    fn are_left_empty(&self) {
        let is_empty = |server: &RedisServer| !server.is_running() || server.keys().is_empty();
        lockson_harness::eventually(SOON, "no server keeps a lock", || self.servers.iter().all(is_empty));
    }
}

fn red(clients: &[Client], name: &str) -> RedLock {
    let locks = clients.iter().map(|client| client.get_lock(name));
    // These servers are new, so they have forgotten nothing.
    RedLock::new(locks).with_node_timeout(NODE).with_rejoin_after(Duration::ZERO)
}

#[test]
fn a_majority_is_held_and_given_back_everywhere() {
    let (nodes, name) = (Nodes::start(5), fresh("red"));
    let lock = nodes.lock(&name);
    let guard = lock.lock().unwrap();
    assert_eq!((nodes.held(&name), guard.hold().members().len()), (5, 5));
    assert_eq!(guard.name(), format!("red({name} on 5 servers)"));
    assert!(guard.is_held() && guard.remaining() > Duration::from_secs(25) && lock.is_locked().unwrap());
    let others = Nodes::clients(&nodes.servers);
    assert!(red(&others, &name).try_lock().unwrap().is_none());
    let inner = lock.lock().unwrap();
    assert_eq!(lock.hold_count(), 2);
    inner.unlock().unwrap();
    guard.unlock().unwrap();
    assert_eq!(nodes.held(&name), 0);
    red(&others, &name).try_lock().unwrap().expect("it is free").unlock().unwrap();
}

#[test]
fn a_red_lock_tells_one_end_for_all_servers() {
    let (nodes, name, events) = (Nodes::start(3), fresh("red"), Events::default());
    let ours = red(&nodes.observed(&events), &name);
    let guard = nodes.lock(&name).lock().unwrap();
    assert!(ours.try_lock().unwrap().is_none());
    guard.unlock().unwrap();
    ours.lock().unwrap().unlock().unwrap();
    assert_eq!(events.take_ends(), ["busy", "acquired"].map(|outcome| format!("red {} {outcome}", ours.name())));
}

#[test]
fn two_dead_of_five_change_nothing_and_three_are_an_error() {
    let (nodes, name) = (Nodes::start(5), fresh("red"));
    let lock = nodes.lock(&name);
    nodes.servers[0].kill();
    nodes.servers[3].pause();
    let guard = lock.lock().unwrap();
    assert_eq!(guard.hold().members().len(), 3);
    guard.unlock().unwrap();
    nodes.servers[4].kill();
    let error = lock.try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quorum);
    let (took, outcome) = timed(|| lock.try_lock_for(ms(600)));
    assert_eq!(kind_of(outcome), ErrorKind::Quorum);
    assert!(took >= ms(600) && took < ms(600) + NODE * 2 + SCHEDULING, "{took:?}");
    nodes.servers[3].resume();
    nodes.servers[4].start_again();
    lock.try_lock_for(SOON).unwrap().expect("three are back").unlock().unwrap();
}

#[test]
fn a_minority_may_be_lost_and_a_majority_may_not() {
    let (nodes, name) = (Nodes::start(5), fresh("red"));
    let guard = nodes.lock(&name).lock().unwrap();
    let told = std::sync::Arc::new(AtomicUsize::new(0));
    let count = std::sync::Arc::clone(&told);
    guard.on_lost(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
    });
    for client in &nodes.clients[..2] {
        assert!(client.get_lock(&name).force_unlock().unwrap());
    }
    assert!(guard.is_held() && guard.lost().is_none());
    assert_eq!((guard.wait_lost(ms(100)), told.load(Ordering::SeqCst)), (None, 0), "a minority");
    let hold = guard.hold().clone();
    let waiter = thread::spawn(move || hold.wait_lost(SOON));
    assert!(nodes.clients[2].get_lock(&name).force_unlock().unwrap());
    assert_eq!(waiter.join().unwrap(), Some(Loss::Gone));
    assert!(!guard.is_held() && guard.unlock().unwrap_err().is_lost());
    assert_eq!(nodes.held(&name), 0);
    lockson_harness::eventually(SOON, "the callback", || told.load(Ordering::SeqCst) == 1);
}

#[test]
fn impossible_red_locks_are_refused_before_any_request() {
    let (client, name) = (client(), fresh("red"));
    let other_name = RedLock::new([client.get_lock(&name), client.get_lock(fresh("red"))]);
    let nested = RedLock::new([Lock::multi([client.get_lock(&name)])]);
    let within = Lock::multi([RedLock::new([client.get_lock(&name)]).into()]);
    assert_eq!(kind_of(within.lock()), ErrorKind::BadInput);
    let endless = RedLock::new([client.get_lock(&name)]).with_node_timeout(Duration::ZERO);
    let database = Client::connect(&RedisServer::shared().url_db(1)).unwrap();
    let databases = RedLock::new([client.get_lock(&name), database.get_lock(&name)]);
    let by = |release_by| {
        client.get_token_lock_with(&name, TokenOptions::new().with_release_by(release_by)).with_lease(SOON)
    };
    let [by_transaction, by_command] = [ReleaseBy::Transaction, ReleaseBy::Server].map(|form| RedLock::new([by(form)]));
    for bad in [RedLock::new([]), other_name, nested, endless, databases, by_transaction, by_command] {
        assert_eq!(kind_of(bad.lock()), ErrorKind::BadInput, "{bad:?}");
    }
}

#[test]
fn two_addresses_of_one_server_are_refused() {
    let (servers, name) = ([RedisServer::start(), RedisServer::start()], fresh("red"));
    let urls = [servers[0].url(), servers[0].url().replace("127.0.0.1", "localhost"), servers[1].url()];
    let clients = urls.map(|url| Client::builder(&url).connect_lazily().unwrap());
    assert_eq!(kind_of(red(&clients, &name).lock()), ErrorKind::BadInput);
    for server in &servers {
        assert_eq!(server.query::<i64>(&["EXISTS", &name]), 0);
    }
}

#[test]
fn a_server_that_started_lately_has_no_vote() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    let strict = nodes.lock(&name).with_rejoin_after(SOON * 60);
    let error = strict.try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quorum);
    assert!(error.to_string().contains("started"), "{error}");
    assert_eq!(nodes.held(&name), 0);
    // The holder's majority is one and two; two restarts empty, and must not make another majority with three.
    let guard = nodes.lock(&name).lock().unwrap();
    assert!(nodes.clients[2].get_lock(&name).force_unlock().unwrap());
    nodes.servers[1].restart();
    let rivals = Nodes::clients(&nodes.servers);
    assert_eq!(kind_of(red(&rivals, &name).with_rejoin_after(SOON * 60).try_lock()), ErrorKind::Quorum);
    assert!(red(&rivals, &name).try_lock().unwrap().is_some(), "without the rule there are two holders");
    drop(guard);
}
