//! A broken connection puts every hold of its server in question, and watched holds are watched again.

use super::{AT_ONCE, all_are_told, patient_scene, watched};
use crate::support::prelude::*;

#[test]
fn a_restart_without_data_is_told_within_a_second_of_its_end() {
    // Long enough for the pauses between attempts to grow; each outage ends at another moment of such a pause.
    at_once([1_500, 1_740], |outage| {
        let (server, client) = patient_scene();
        let guards = watched(&server, &client);
        server.kill();
        thread::sleep(ms(outage));
        server.start_again();
        let since = Instant::now();
        all_are_told(&guards, since, Loss::Gone, "restart");
        let took = since.elapsed();
        assert!(took < ms(750) + SCHEDULING / 4, "{took:?} after {outage} ms without the server");
    });
}

#[test]
fn holds_that_are_only_leased_are_told_of_a_restart_as_well() {
    let (server, client) = patient_scene();
    let guard = client.get_lock("leased").with_lease(super::LEASE).owned().lock().unwrap();
    eventually(SOON, "the hold is watched", || server.tracked_keys() > 0);
    server.restart();
    all_are_told(&[guard], Instant::now(), Loss::Gone, "restart");
}

#[test]
fn a_key_deleted_in_an_outage_is_told_after_reconnection() {
    for kind in ["pubsub", "normal"] {
        let (server, client) = patient_scene();
        let guards = watched(&server, &client);
        let since = Instant::now();
        // In one step: no client receives a message about a key deleted before the reconnection.
        let mut gone = redis::pipe();
        gone.atomic().cmd("CLIENT").arg("KILL").arg("TYPE").arg(kind).arg("SKIPME").arg("yes").ignore();
        for guard in &guards {
            gone.del(guard.name()).ignore();
        }
        gone.query::<()>(&mut server.connection()).unwrap();
        all_are_told(&guards, since, Loss::Gone, kind);
    }
}

#[test]
fn watched_holds_are_watched_again_after_a_broken_connection() {
    for kind in ["pubsub", "normal"] {
        let (server, client) = patient_scene();
        let guards = watched(&server, &client);
        let dead = connections_of(&server);
        server.run(&["CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes"]);
        eventually(SOON, "all are watched again", || {
            let now = connections_of(&server);
            now.len() == 2 && now != dead && server.tracked_keys() >= guards.len()
        });
        assert!(guards.iter().all(|guard| guard.is_held()), "no hold was lost");
        thread::sleep(ms(200)); // the last question about all holds has ended
        let since = Instant::now();
        guards.iter().for_each(|guard| server.run(&["DEL", guard.name()]));
        all_are_told(&guards, since, Loss::Gone, kind);
    }
}

/// The ids of the reading connection and of the connection that receives the reading's invalidations.
fn connections_of(server: &RedisServer) -> Vec<String> {
    let reads = |client: &std::collections::BTreeMap<String, String>| client["flags"].contains('t');
    let clients = server.clients();
    let reading = clients.iter().find(|client| reads(client));
    reading.map(|client| vec![client["id"].clone(), client["redir"].clone()]).unwrap_or_default()
}

#[test]
fn a_broken_watchdog_connection_verifies_all_holds_once() {
    let (server, client) = patient_scene();
    let guards = watched(&server, &client);
    thread::sleep(ms(300));
    server.reset_counters();
    server.run(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    thread::sleep(ms(2_000)); // the absence of requests has no sign to wait for
    // Plain, read-write, token, and token without scripts: one batch for each renewed group.
    let renewals = server.calls_of("evalsha") + server.calls_of("exec");
    let looks = server.calls_of("hexists") + server.calls_of("get");
    assert!((1..=6).contains(&renewals), "{renewals} renewals");
    assert!(looks <= 4 * guards.len() as u64, "{looks} looks at {} holds", guards.len());
}

#[test]
fn a_loss_is_told_while_the_listener_cannot_reconnect() {
    let rig = Rig::start();
    let client = super::patient(&rig.proxy.url()).connect().unwrap();
    let guard = client.get_lock("alone").owned().lock().unwrap();
    eventually(SOON, "the hold is watched", || rig.server.tracked_keys() > 0);
    // From now on no connection can listen: each SUBSCRIBE is cut.
    let subscribes = When::command("SUBSCRIBE").always();
    rig.proxy.rule(subscribes, Then::CutBeforeRequest);
    rig.server.run(&["CLIENT", "KILL", "TYPE", "pubsub"]);
    rig.server.run(&["DEL", "alone"]);
    assert_eq!(guard.wait_lost(AT_ONCE), Some(Loss::Gone));
}

#[test]
fn a_loss_that_only_a_replica_tells_is_no_loss() {
    let rig = Rig::start();
    let empty = RedisServer::builder().config("repl-diskless-sync-delay 0").start();
    let successor = RedisServer::start();
    let client = super::patient(&rig.proxy.url()).connect().unwrap();
    // With a lease the request is a plain look, and a replica answers a look too.
    let guard = client.get_lock("kept").with_lease(super::LEASE).owned().lock().unwrap();
    eventually(SOON, "the hold is watched", || rig.server.tracked_keys() > 0);
    successor.run(&["HSET", "kept", guard.owner(), "1"]);
    successor.run(&["PEXPIRE", "kept", "150000"]);
    rig.proxy.retarget(successor.address());
    rig.server.reset_counters();
    // Open connections stay with their server, and the data that the server takes over lacks the key.
    rig.server.run(&["REPLICAOF", "127.0.0.1", &empty.port().to_string()]);
    let are_asked = |server: &RedisServer| server.calls_of("hexists") > 0;
    eventually(SOON, "the replica is asked", || are_asked(&rig.server));
    assert_eq!(rig.server.keys(), Vec::<String>::new());
    eventually(SOON, "the master is asked", || guard.lost().is_some() || are_asked(&successor));
    assert_eq!(guard.wait_lost(ms(200)), None, "the master has the key");
    eventually(SOON, "the hold is watched at the master", || successor.tracked_keys() > 0);
    guard.unlock().unwrap();
    assert!(successor.keys().is_empty());
}

#[test]
fn changes_are_not_told_to_a_client_of_another_server() {
    let rig = Rig::start();
    let successor = RedisServer::start();
    let client = super::patient(&rig.proxy.url()).connect().unwrap();
    let guard = client.get_lock("moved").owned().lock().unwrap();
    eventually(SOON, "the hold is watched", || rig.server.tracked_keys() > 0);
    let (reading, listening) = match &connections_of(&rig.server)[..] {
        [reading, listening] => (reading.clone(), listening.parse::<u64>().unwrap()),
        others => panic!("{others:?}"),
    };
    // The successor knows a client of the number that the listening connection has at the first server.
    let mut others = vec![successor.connection()];
    while redis::cmd("CLIENT").arg("ID").query::<u64>(others.last_mut().unwrap()).unwrap() < listening {
        others.push(successor.connection());
    }
    successor.run(&["HSET", "moved", guard.owner(), "1"]);
    successor.run(&["PEXPIRE", "moved", "150000"]);
    rig.proxy.retarget(successor.address());
    // The listening connection stays with the first server.
    rig.server.run(&["CLIENT", "KILL", "ID", &reading]);
    eventually(SOON, "the hold is watched at the successor", || successor.tracked_keys() > 0);
    assert!(connections_of(&successor)[1].parse::<u64>().unwrap() > listening);
    successor.run(&["DEL", "moved"]);
    assert_eq!(guard.wait_lost(AT_ONCE), Some(Loss::Gone));
}

#[test]
fn holds_are_watched_again_soon_after_an_outage() {
    let (server, client) = alone();
    let renewed = client.get_lock("renewed").owned().lock().unwrap();
    let leased = client.get_lock("leased").with_lease(super::LEASE).owned().lock().unwrap();
    eventually(SOON, "both are watched", || server.tracked_keys() >= 2);
    // The question about all holds is asked meanwhile, and is not answered.
    server.pause();
    thread::sleep(ms(7_500));
    server.resume();
    thread::sleep(ms(2_000)); // for both connections, and for the question
    server.run(&["DEL", "renewed", "leased"]);
    assert_eq!(leased.wait_lost(ms(1_000) + SCHEDULING), Some(Loss::Gone));
    assert_eq!(renewed.wait_lost(ms(1_000) + SCHEDULING), Some(Loss::Gone));
}

#[test]
fn a_slow_link_does_not_end_the_watch() {
    let (rig, client) = Rig::start().and(|rig| rig.builder().watchdog(ms(4_000), ms(700)).connect().unwrap());
    let renewed = client.get_lock("renewed").owned().lock().unwrap();
    let leased = client.get_lock("leased").with_lease(super::LEASE).owned().lock().unwrap();
    eventually(SOON, "both are watched", || rig.server.tracked_keys() >= 2);
    rig.proxy.rule(When::any().always(), Then::DelayReply(ms(200)));
    rig.server.run(&["CLIENT", "KILL", "ID", &connections_of(&rig.server)[0]]);
    thread::sleep(ms(4_000)); // several times what a connection and the request to be told need
    rig.server.run(&["DEL", "leased"]);
    assert_eq!(leased.wait_lost(AT_ONCE), Some(Loss::Gone));
    assert!(renewed.is_held());
}
