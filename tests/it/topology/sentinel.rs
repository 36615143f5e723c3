//! Clients behind sentinels: the master is found, and found again after a fail-over.

mod fail_overs;

use lockson_harness::SentinelSet;

use crate::support::prelude::*;

/// Locks of these clients live longer than any fail-over here.
fn builder(url: &str) -> ClientBuilder {
    Client::builder(url).watchdog(Duration::from_secs(30), Duration::from_secs(5))
}

/// Waits until a client listens for the release of a lock.
fn await_listener(server: &RedisServer, name: &str) {
    let channel = format!("redisson_lock__channel:{{{name}}}");
    eventually(SOON, "a waiter that listens", || server.subscribers(&channel) == 1);
}

#[test]
fn a_fail_over_keeps_copied_holds_and_moves_waiters() {
    let set = SentinelSet::builder(1, 3).password("word").sentinel_password("other").start();
    let client = builder(&set.url()).connect().unwrap();
    let name = fresh("held");
    let held = client.get_lock(&name).lock().unwrap();
    let waiter = thread::spawn({
        let (other, name) = (builder(&set.url()).connect().unwrap(), name.clone());
        move || other.get_lock(&name).try_lock_for(LONG).unwrap().is_some()
    });
    await_listener(set.server(0), &name);
    set.wait_for_sync();
    set.server(0).kill();
    let killed = Instant::now();
    let guard = client.get_lock(fresh("free")).try_lock_for(LONG).unwrap().expect("nobody has it");
    println!("granted {:?} after the kill", killed.elapsed());
    guard.unlock().unwrap();
    assert!(held.lost().is_none());
    // The waiter listens at the new master without asking for the reason.
    await_listener(set.server(1), &name);
    let (took, ()) = timed(|| {
        held.unlock().unwrap();
        assert!(waiter.join().unwrap());
    });
    assert!(took < ms(900) + STANDSTILLS, "the release woke the waiter, not the clock: {took:?}");
}

#[test]
fn a_master_that_hangs_is_left_and_grants_nothing_later() {
    let set = SentinelSet::start(1, 3);
    let client = builder(&set.url()).connect().unwrap();
    let (name, lost) = (fresh("held"), fresh("not copied"));
    let held = client.get_lock(&name).lock().unwrap();
    await_watch(set.server(0), &name);
    set.wait_for_sync();
    set.server(1).pause();
    // What was sent already would be read after the pause.
    set.server(0).run(&["CLIENT", "KILL", "TYPE", "replica"]);
    let forgotten = client.get_lock(&lost).lock().unwrap();
    set.server(0).pause();
    set.server(1).resume();
    let asking = thread::spawn({
        let (client, name) = (client.clone(), fresh("asked"));
        // Its question is on the way to the old master when that one stops.
        move || client.get_lock(&name).try_lock_for(LONG).unwrap().expect("nobody has it").unlock()
    });
    set.wait_for_another_master(0);
    asking.join().unwrap().unwrap();
    eventually(SOON, "the loss is told", || forgotten.lost().is_some());
    assert!(held.lost().is_none());
    set.server(0).resume();
    // The old master calls itself master for a while; nobody asks there any more.
    let asked = set.server(0).calls_of("evalsha");
    for number in 0..50 {
        client.get_lock(format!("{name}:{number}")).lock().unwrap().unlock().unwrap();
    }
    assert_eq!(set.server(0).calls_of("evalsha"), asked);
    held.unlock().unwrap();
}

/// The sentinels know each other by address, and the URL has names: a sentinel that falls silent with its machine must
/// not count twice.
#[test]
fn the_machine_of_the_master_may_have_a_sentinel() {
    let set = SentinelSet::start(1, 3);
    let client = builder(&set.url().replace("127.0.0.1", "localhost")).connect().unwrap();
    client.get_lock(fresh("before")).lock().unwrap().unlock().unwrap();
    set.sentinels()[2].pause();
    set.server(0).pause();
    let asking = thread::spawn({
        let client = client.clone();
        // Finds out that the master is silent.
        move || client.get_lock(fresh("asked")).try_lock_for(LONG).map(drop)
    });
    set.wait_for_another_master(0);
    let moved = Instant::now();
    eventually(SOON, "a lock at the new master", || client.get_lock(fresh("after")).try_lock().is_ok());
    let took = moved.elapsed();
    println!("granted {took:?} after the fail-over");
    let _ = asking.join().unwrap();
    assert!(took < Duration::from_secs(4) + STANDSTILLS, "{took:?}");
}

#[test]
fn most_sentinels_must_agree() {
    let set = SentinelSet::start(0, 3);
    let open = |url: &str| builder(url).command_timeout(ms(600)).connect();
    // One address of a sentinel is enough to find the others.
    let one = format!("redis+sentinel://{}/mymaster", set.sentinels()[0].address());
    open(&one).unwrap().get_lock(fresh("one")).lock().unwrap().unlock().unwrap();
    let client = open(&set.url()).unwrap();
    set.sentinels()[2].pause();
    let (took, outcome) = timed(|| open(&set.url()));
    outcome.unwrap().get_lock(fresh("two")).lock().unwrap().unlock().unwrap();
    assert!(took < ms(600) + STANDSTILLS, "a silent sentinel costs a part of one request: {took:?}");
    set.sentinels()[1].kill();
    let error = open(&set.url()).map(drop).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Connection, "{error}");
    assert!(error.to_string().contains("1 of 3 sentinels answer, and 2 must agree"), "{error}");
    // Who has a connection goes on.
    client.get_lock(fresh("old")).lock().unwrap().unlock().unwrap();
    set.sentinels()[2].resume();
    open(&set.url()).unwrap();
}

#[test]
fn faulty_settings_are_told_in_words() {
    let set = SentinelSet::builder(0, 1).sentinel_password("word").start();
    let sentinel = set.sentinels()[0].address();
    let check = |url: String, kind: ErrorKind, words: &str| {
        let (took, outcome) = timed(|| Client::connect(&url));
        let error = outcome.map(drop).unwrap_err();
        assert_eq!(error.kind(), kind, "{error}");
        assert!(error.to_string().contains(words), "{error}");
        assert!(took < Duration::from_secs(2), "nothing is waited for: {took:?}");
    };
    check(format!("redis+sentinel://{sentinel}/other?sentinel_pass=word"), ErrorKind::Config, "watch no service other");
    check(format!("redis+sentinel://{sentinel}/mymaster"), ErrorKind::Refused, "as ?sentinel_pass=word");
    check(
        format!("redis+sentinel://{sentinel}/mymaster?sentinel_pass=no"),
        ErrorKind::Refused,
        "correct sentinel_user",
    );
    check(format!("redis+sentinel://:no@{sentinel}/mymaster"), ErrorKind::Refused, "not that of the servers");
    let server = set.server(0).address();
    check(format!("redis+sentinel://{server}/mymaster"), ErrorKind::Unsupported, "is no Sentinel");
    check(format!("redis://:word@{sentinel}"), ErrorKind::Unsupported, "redis+sentinel://");
}

#[test]
fn sentinels_get_the_login_of_the_servers_if_they_ask() {
    for asks in [false, true] {
        let set = SentinelSet::builder(0, 1).password("word");
        let set = if asks { set.sentinel_password("word").start() } else { set.start() };
        let sentinel = &set.sentinels()[0];
        let client = Client::connect(&format!("redis+sentinel://:word@{}/mymaster", sentinel.address())).unwrap();
        client.get_lock(fresh("behind")).lock().unwrap().unlock().unwrap();
        assert!(asks || sentinel.calls_of("auth") == 0);
    }
}

#[test]
fn the_master_of_a_replicated_set_is_found_again() {
    let set = SentinelSet::start(1, 1);
    let client = builder(&set.replicated_url()).connect().unwrap();
    let name = fresh("held");
    let held = client.get_lock(&name).lock().unwrap();
    set.wait_for_sync();
    set.server(0).kill();
    client.get_lock(fresh("free")).try_lock_for(LONG).unwrap().expect("nobody has it").unlock().unwrap();
    assert!(held.lost().is_none());
    // An old master that comes back calls itself master, and has nothing.
    set.server(0).start_again();
    let error = builder(&set.replicated_url()).command_timeout(ms(400)).connect().map(drop).unwrap_err();
    assert!(error.to_string().contains("several nodes call themselves master"), "{error}");
    let asked = set.server(0).calls_of("evalsha");
    client.get_lock(fresh("free")).lock().unwrap().unlock().unwrap();
    assert_eq!(set.server(0).calls_of("evalsha"), asked);
    held.unlock().unwrap();
}

/// Waits until the server reports changes of the lock to its holder.
fn await_watch(server: &RedisServer, name: &str) {
    eventually(SOON, "a watched key", || server.tracked_keys() > 0);
    assert!(!name.is_empty());
}

const LONG: Duration = Duration::from_secs(30);
