//! The cost of watching: nothing for short holds, and a bounded number of questions for busy keys.

use super::{AT_ONCE, patient, patient_scene};
use crate::support::prelude::*;

#[test]
fn short_holds_cause_no_connection_and_no_question() {
    let (server, client) = patient_scene();
    let until = Instant::now() + ms(1_500);
    let mut longest = Duration::ZERO;
    while Instant::now() < until {
        let guard = client.get_lock("short").lock().unwrap();
        let since = Instant::now();
        guard.unlock().unwrap();
        longest = longest.max(since.elapsed());
    }
    if longest < ms(100) {
        assert_eq!((server.tracked_keys(), server.clients_named("lockson")), (0, 1));
    }
}

#[test]
fn a_release_of_a_watched_lock_causes_no_question() {
    let (server, client) = patient_scene();
    let guards: Vec<_> = (0..50).map(|number| client.get_lock(number.to_string()).lock().unwrap()).collect();
    eventually(SOON, "all are watched", || server.tracked_keys() == 50);
    thread::sleep(ms(300)); // the last look has ended
    server.reset_counters();
    // The release script itself reads the field once.
    guards.into_iter().for_each(|guard| guard.unlock().unwrap());
    let by_releases = server.calls_of("hexists");
    thread::sleep(ms(500)); // the absence of requests has no sign to wait for
    assert_eq!(server.calls_of("hexists"), by_releases);
    assert!(by_releases <= 50);
}

#[test]
fn constant_writes_cost_few_questions() {
    // A look at the hold of a reader asks for two fields.
    for (by_owner, most) in [(true, 60), (false, 120)] {
        let (server, client) = patient_scene();
        let lock = if by_owner { client.get_lock("busy") } else { client.get_read_write_lock("busy").read() };
        let guard = lock.lock().unwrap();
        eventually(SOON, "the hold is watched", || server.tracked_keys() > 0);
        let mut others = write_of_another(&server);
        let looks = looks_during(&server, || if by_owner { lock.lock().unwrap().unlock().unwrap() } else { others() });
        assert!(looks <= most, "{looks} looks a second, by the owner: {by_owner}");
        server.run(&["DEL", "busy"]);
        assert_eq!(guard.wait_lost(AT_ONCE), Some(Loss::Gone));
    }
}

/// Writes to the lock of readers as another reader.
fn write_of_another(server: &RedisServer) -> impl FnMut() {
    let mut connection = server.connection();
    move || redis::cmd("HSET").arg("busy").arg("another:1").arg(1).query::<()>(&mut connection).unwrap()
}

#[test]
fn writes_to_a_key_of_many_holds_cost_few_questions() {
    const HOLDS: usize = 1_000;
    let (server, client) = patient_scene();
    let lock = client.get_read_write_lock("busy").read().owned();
    let guards: Vec<_> = (0..HOLDS).map(|_| lock.lock().unwrap()).collect();
    let looks = looks_during(&server, write_of_another(&server));
    assert!(looks <= 14_000, "{looks} looks a second, two fields each");
    server.run(&["DEL", "busy"]);
    assert!(guards.iter().all(|guard| guard.wait_lost(SOON) == Some(Loss::Gone)));
}

/// How many plain questions a client sends in a second of endless repetition of the deed.
fn looks_during(server: &RedisServer, mut deed: impl FnMut()) -> u64 {
    thread::sleep(ms(300)); // the last look has ended
    let asked = || in_commands(server, "hexists");
    let (before, since) = (asked(), Instant::now());
    let mut deeds = 0;
    while since.elapsed() < ms(1_000) || deeds <= 200 {
        deed();
        deeds += 1;
    }
    (asked() - before) * 1_000 / u64::try_from(since.elapsed().as_millis()).unwrap()
}

/// Calls of a command outside scripts: calls inside scripts are as many as scripts that use the command once.
fn in_commands(server: &RedisServer, command: &str) -> u64 {
    server.calls_of(command).saturating_sub(server.calls_of("evalsha"))
}

#[test]
fn force_unlocks_on_a_slow_server_are_all_told_afterwards() {
    const LOCKS: usize = 300;
    let rig = Rig::start();
    let client = patient(&rig.proxy.url()).connect().unwrap();
    let guards: Vec<_> =
        (0..LOCKS).map(|number| client.get_lock(format!("{number}")).owned().lock().unwrap()).collect();
    eventually(SOON, "all are watched", || rig.server.tracked_keys() == LOCKS);
    thread::sleep(ms(300)); // the last look has ended
    // The watchdog waits for the answer to the first, and hears of all others meanwhile.
    rig.server.run(&["DEL", "0"]);
    let _ = rig.proxy.rule(When::command("HEXISTS"), lockson_harness::proxy::Then::DelayReply(ms(1_000)));
    for guard in &guards[1..] {
        rig.server.run(&["DEL", guard.name()]);
    }
    let since = Instant::now();
    super::all_are_told(&guards, since, Loss::Gone, "slow");
}

#[test]
fn a_mute_listening_connection_delays_no_renewal() {
    let (rig, client) = Rig::start().and(|rig| rig.builder().watchdog(ms(2_000), ms(200)).connect().unwrap());
    let guard = client.get_lock("kept").lock().unwrap();
    eventually(SOON, "the hold is watched", || rig.server.tracked_keys() > 0);
    let listening = rig.proxy.wait_for(&When::command("SUBSCRIBE"), SOON).connection;
    rig.proxy.mute(Scope::Connection(listening), Direction::Both);
    assert_eq!(guard.wait_lost(ms(2_500)), None);
    guard.unlock().unwrap();
}

#[test]
fn ten_thousand_holds_are_watched_and_told_of_a_flush() {
    const HOLDS: usize = 10_000;
    let server = RedisServer::start();
    let client = Client::builder(&server.url()).watchdog(Duration::from_secs(300), Duration::from_secs(100));
    let client = client.connect().unwrap();
    let guards: Vec<_> =
        (0..HOLDS).map(|number| client.get_lock(format!("many {number}")).owned().lock().unwrap()).collect();
    eventually(Duration::from_secs(60), "all are watched", || server.tracked_keys() == HOLDS);
    let since = Instant::now();
    server.run(&["FLUSHALL"]);
    let told: Vec<_> = guards.iter().map(|guard| guard.wait_lost(AT_ONCE)).collect();
    let took = since.elapsed();
    assert!(told.iter().all(|told| *told == Some(Loss::Gone)), "after {took:?}");
    println!("{HOLDS} holds were told of a flush within {took:?}");
}
