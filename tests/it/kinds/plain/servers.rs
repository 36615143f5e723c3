//! Ways to reach a server: protocols, sockets, databases, credentials, names.

use crate::support::prelude::*;

/// Sends every request once: take, re-enter, query, renew, wait, wake, force.
#[track_caller]
fn exercise(server: &RedisServer, url: &str) {
    let (ours, theirs) =
        (Client::connect(url).unwrap(), Client::builder(url).watchdog(ms(1_000), ms(100)).connect().unwrap());
    let name = fresh("server");
    let (lock, others) = (ours.get_lock(&name), theirs.get_lock(&name));
    let guard = lock.lock().unwrap();
    drop(lock.with_lease(ms(60_000)).lock().unwrap());
    assert_eq!(others.holder().unwrap().unwrap().owner(), guard.owner());
    assert!(lock.remaining_time_to_live().unwrap().is_some());
    guard.extend(ms(40_000)).unwrap();
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            let guard = others.try_lock_for(SOON).unwrap().expect("the lock is released");
            let renewed = guard.wait_lost(ms(1_500)).is_none();
            guard.unlock().unwrap();
            renewed
        });
        eventually(SOON, "it listens", || server.subscribers(&channel(&name)) == 1);
        guard.unlock().unwrap();
        assert!(joined(waiter), "the hold is renewed");
    });
    let guard = lock.lock().unwrap();
    assert!(others.force_unlock().unwrap());
    assert!(guard.unlock().is_err());
    assert!(!lock.is_locked().unwrap());
}

#[test]
fn the_newer_protocol_is_spoken_where_it_is_asked_for() {
    let server = RedisServer::start();
    let url = format!("{}?protocol=resp3", server.url());
    exercise(&server, &url);
    let client = Client::builder(&url).client_name("newer").connect().unwrap();
    let protocols: Vec<String> = server
        .clients()
        .into_iter()
        .filter(|client| client["name"].starts_with("newer:"))
        .filter_map(|client| client.get("resp").cloned())
        .collect();
    assert!(!protocols.is_empty() && protocols.iter().all(|protocol| protocol == "3"), "{protocols:?}");
    client.close();
}

#[test]
fn a_unix_socket_will_do() {
    let server = RedisServer::start();
    exercise(&server, &server.unix_url());
    let absent = format!("redis+unix://{}", server.data_folder().join("nothing.sock").display());
    assert_eq!(kind_of(Client::connect(&absent)), ErrorKind::Connection);
}

#[test]
fn locks_of_two_databases_are_two_locks() {
    let server = RedisServer::start();
    exercise(&server, &server.url_db(3));
    let (ours, theirs) = (Client::connect(&server.url_db(3)).unwrap(), Client::connect(&server.url()).unwrap());
    let guard = ours.get_lock("same").lock().unwrap();
    let other = theirs.get_lock("same").lock().unwrap();
    assert_eq!(fields(&server, "same"), [(other.owner().to_owned(), "1".to_owned())]);
    guard.unlock().unwrap();
    assert!(other.is_held() && theirs.get_lock("same").is_locked().unwrap());
    assert_eq!(kind_of(Client::connect(&server.url_db(9_999))), ErrorKind::Refused);
}

#[test]
fn a_password_is_sent_over_every_protocol() {
    let server = RedisServer::builder().password("s3cret-canary").start();
    let urls = [server.url(), server.unix_url(), format!("{}?protocol=resp3", server.url())];
    at_once(urls, |url| exercise(&server, &url));
}

#[test]
fn every_connection_carries_the_client_s_name() {
    let server = RedisServer::start();
    let client =
        Client::builder(&server.url()).watchdog(ms(1_000), ms(100)).client_name("my-service").connect().unwrap();
    let guard = client.get_lock("named").lock().unwrap();
    let foreign = Client::connect(&server.url()).unwrap();
    let theirs = foreign.get_lock("other").lock().unwrap();
    assert_eq!(server.clients_named("lockson"), 1, "the name that one gets unasked");
    thread::scope(|scope| {
        let lock = client.get_lock("other");
        let waiter = scope.spawn(move || lock.try_lock_for(SOON).unwrap().is_some());
        eventually(SOON, "one asks, one renews, one listens", || server.clients_named("my-service") == 3);
        theirs.unlock().unwrap();
        assert!(joined(waiter));
    });
    guard.unlock().unwrap();
}

#[test]
fn an_absent_server_is_reported_at_once_or_at_first_use() {
    let server = RedisServer::start();
    let url = server.url();
    server.kill();
    assert_eq!(kind_of(Client::connect(&url)), ErrorKind::Connection);
    let lazy = Client::builder(&url).connect_lazily().unwrap();
    assert_eq!(kind_of(lazy.get_lock("lazy").try_lock()), ErrorKind::Connection);
    server.start_again();
    assert!(lazy.get_lock("lazy").try_lock().unwrap().is_some(), "the same client serves once there is one");
}
