//! The members of a red lock: their kinds, their number, their losses and their clients.

use lockson::RedLock;

use super::{NODE, Nodes, red};
use crate::support::prelude::*;

type Make = fn(&Client) -> Lock;

fn red_of(clients: &[Client], lock: impl Fn(&Client) -> Lock) -> RedLock {
    RedLock::new(clients.iter().map(lock)).with_node_timeout(NODE).with_rejoin_after(Duration::ZERO)
}

#[test]
fn locks_of_each_kind_can_be_members() {
    let nodes = Nodes::start(3);
    let others = Nodes::clients(&nodes.servers);
    let kinds: [(&str, Make); 7] = [
        ("fenced", |client| client.get_fenced_lock("fenced").into()),
        ("fair", |client| client.get_fair_lock("fair")),
        ("write", |client| client.get_read_write_lock("write").write()),
        ("read", |client| client.get_read_write_lock("read").read()),
        ("spin", |client| client.get_spin_lock("spin")),
        ("non-reentrant", |client| client.get_non_reentrant_lock("non-reentrant")),
        ("token", |client| client.get_token_lock("token")),
    ];
    let group = |client: &Client| client.get_group_lock("group", ["value"]);
    assert_eq!(kind_of(red_of(&nodes.clients, group).lock()), ErrorKind::BadInput);
    nodes.servers[1].pause();
    let guards = kinds.map(|(_, kind)| red_of(&nodes.clients, kind).lock().unwrap());
    nodes.servers[1].resume();
    for ((label, kind), guard) in kinds.into_iter().zip(guards) {
        assert_eq!(guard.hold().members().len(), 2, "{label}");
        if label == "fenced" {
            let tokens: Vec<_> = guard.hold().members().iter().map(|member| member.token()).collect();
            assert!(tokens.iter().all(Option::is_some) && guard.hold().token().is_none(), "{tokens:?}");
        }
        let theirs = red_of(&others, kind);
        let rival = elsewhere(|| theirs.try_lock_for(ms(100)).unwrap().map(drop));
        assert_eq!(rival.is_some(), label == "read", "{label}");
        thread::scope(|scope| {
            let waiter = scope.spawn(|| theirs.try_lock_for(SOON).unwrap().expect("it is released").unlock().unwrap());
            thread::sleep(ms(100));
            guard.unlock().unwrap();
            joined(waiter);
        });
    }
    let keys = || -> Vec<String> { nodes.servers.iter().flat_map(RedisServer::keys).collect() };
    // The counter of tokens stays.
    let left = |key: &String| !key.contains("token") && !key.contains("fenc");
    eventually(SOON, "nothing is left", || !keys().iter().any(left));
}

/// Such an error is that of the program, and a repetition would not end.
#[test]
fn a_lock_that_refuses_re_entry_refuses_it_as_a_member() {
    let nodes = Nodes::start(3);
    let kinds: [(Make, Make); 2] = [
        (|client| client.get_read_write_lock("side").read(), |client| client.get_read_write_lock("side").write()),
        (|client| client.get_non_reentrant_lock("once"), |client| client.get_non_reentrant_lock("once")),
    ];
    for (first, second) in kinds {
        let guard = red_of(&nodes.clients, first).lock().unwrap();
        let error = red_of(&nodes.clients, second).lock().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::AlreadyHeld, "{error}");
        guard.unlock().unwrap();
    }
    nodes.are_left_empty();
}

#[test]
fn red_locks_of_one_and_of_two_servers() {
    let (one, two, name) = (Nodes::start(1), Nodes::start(2), fresh("red"));
    let guard = one.lock(&name).lock().unwrap();
    let others = Nodes::clients(&one.servers);
    assert!(red(&others, &name).try_lock().unwrap().is_none());
    guard.unlock().unwrap();
    let guard = two.lock(&name).lock().unwrap();
    assert!(two.clients[1].get_lock(&name).force_unlock().unwrap());
    assert_eq!(guard.wait_lost(SOON), Some(Loss::Gone), "two of two are a majority");
    assert!(guard.unlock().unwrap_err().is_lost());
    two.servers[0].kill();
    assert_eq!(kind_of(two.lock(&name).try_lock()), ErrorKind::Quorum);
    one.are_left_empty();
    two.are_left_empty();
}

#[test]
fn a_hold_is_re_entered_while_a_majority_is_left() {
    let (nodes, name) = (Nodes::start(5), fresh("red"));
    let lock = nodes.lock(&name);
    let outer = lock.lock().unwrap();
    let lose = |member: usize| {
        assert!(nodes.clients[member].get_lock(&name).force_unlock().unwrap());
        let hold = outer.hold().members()[member].clone();
        eventually(SOON, "the loss is known", || hold.lost().is_some());
    };
    lose(0);
    lose(3);
    let inner = lock.lock().unwrap();
    assert!(inner.is_held());
    inner.unlock().unwrap();
    assert!(outer.is_held());
    lose(1);
    let error = lock.lock().unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(!outer.is_held());
    assert!(outer.unlock().unwrap_err().is_lost());
    lock.lock().unwrap().unlock().unwrap();
    nodes.are_left_empty();
}

#[test]
fn fresh_votes_do_not_replace_a_lost_outer_hold() {
    let (nodes, name) = (Nodes::start(5), fresh("red"));
    let lock = nodes.lock(&name);
    nodes.servers[3].kill();
    nodes.servers[4].kill();
    let outer = lock.lock().unwrap();
    assert_eq!(outer.hold().members().len(), 3);
    nodes.servers[3].start_again();
    nodes.servers[4].start_again();
    assert!(nodes.clients[0].get_lock(&name).force_unlock().unwrap());
    eventually(SOON, "the loss is known", || !outer.is_held());
    // Two members and two new votes would be four of five, but others may have had the lock meanwhile.
    let error = lock.try_lock_for(Duration::from_secs(3)).unwrap_err();
    assert!(error.is_lost(), "{error}");
    assert!(outer.unlock().unwrap_err().is_lost());
    nodes.are_left_empty();
}

/// As after a stop of this process, when each request seems to have had no answer in time.
#[test]
fn a_hold_is_re_entered_after_all_servers_seemed_down() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    let lock = nodes.lock(&name);
    let outer = lock.lock().unwrap();
    nodes.servers.iter().for_each(RedisServer::pause);
    assert_eq!(kind_of(lock.try_lock()), ErrorKind::Quorum);
    assert_eq!(kind_of(nodes.lock(&fresh("red")).try_lock()), ErrorKind::Quorum);
    nodes.servers.iter().for_each(RedisServer::resume);
    let inner = lock.try_lock().unwrap().expect("this thread holds it");
    assert!(inner.is_held() && outer.is_held());
    inner.unlock().unwrap();
    outer.unlock().unwrap();
    nodes.are_left_empty();
}

#[test]
fn a_server_that_stops_longer_than_the_lease_costs_one_member() {
    let (servers, name) = ([0; 5].map(|_| RedisServer::start()), fresh("red"));
    let clients: Vec<_> = servers.iter().map(|server| brisk(server).connect().unwrap()).collect();
    let guard = red(&clients, &name).lock().unwrap();
    servers[1].pause();
    let member = guard.hold().members()[1].clone();
    eventually(TTL + SOON, "the member is lost", || member.lost().is_some());
    servers[1].resume();
    thread::sleep(TTL);
    assert!(guard.is_held() && guard.lost().is_none() && guard.remaining() > TTL / 4, "{guard:?}");
    guard.unlock().unwrap();
    eventually(SOON, "nothing is left", || servers.iter().all(|server| server.keys().is_empty()));
}

/// The client knows the server: it took locks there, with connections of before the restart and of after it.
#[test]
fn a_known_server_that_restarts_empty_has_no_vote() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    let rivals = Nodes::clients(&nodes.servers);
    let rival = red(&rivals, &name).with_rejoin_after(Duration::from_secs(60));
    let used = red(&rivals, &fresh("red"));
    used.lock().unwrap().unlock().unwrap();
    for client in &rivals {
        client.get_lock(fresh("plain")).lock().unwrap().unlock().unwrap();
    }
    let guard = nodes.lock(&name).with_lease(Duration::from_secs(60)).lock().unwrap();
    nodes.servers[0].restart();
    nodes.servers[1].restart();
    // Ordinary locks use the new connections first.
    for client in &rivals {
        client.get_lock(fresh("plain")).lock().unwrap().unlock().unwrap();
    }
    let error = rival.try_lock().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quorum);
    assert_eq!(error.to_string().matches("started").count(), 3, "{error}");
    assert_eq!(nodes.held(&name), 1);
    drop(guard);
}

/// Other holds of such a lock may be as long as its lease.
#[test]
fn a_long_lease_keeps_a_new_server_from_voting() {
    let (servers, name) = ([0; 3].map(|_| RedisServer::start()), fresh("red"));
    let clients: Vec<_> = servers.iter().map(|server| brisk(server).connect().unwrap()).collect();
    let lock = RedLock::new(clients.iter().map(|client| client.get_lock(&name))).with_node_timeout(NODE);
    // The uptime has whole seconds.
    let is_taken = || lock.try_lock().is_ok_and(|guard| guard.is_some());
    eventually(TTL + Duration::from_secs(3), "the servers vote for holds of the usual length", is_taken);
    assert_eq!(kind_of(lock.with_lease(Duration::from_secs(600)).try_lock()), ErrorKind::Quorum);
    let trusted = lock.with_rejoin_after(TTL).with_lease(Duration::from_secs(600));
    trusted.try_lock().unwrap().expect("the caller knows better").unlock().unwrap();
}

#[test]
fn a_waiter_can_be_cancelled_and_its_client_closed() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    let guard = nodes.lock(&name).lock().unwrap();
    for (wanted, closes) in [(ErrorKind::Cancelled, false), (ErrorKind::Closed, true)] {
        let (clients, cancel) = (Nodes::clients(&nodes.servers), Cancel::new());
        let waiter = red(&clients, &name).with_cancel(&cancel);
        thread::scope(|scope| {
            let waiting = scope.spawn(|| waiter.lock().map(drop));
            eventually(SOON, "it waits", || clients.iter().any(|client| !client.waiting().is_empty()));
            let (took, outcome) = timed(|| {
                if closes {
                    clients[1].close()
                } else {
                    cancel.cancel()
                }
                joined(waiting)
            });
            assert_eq!(kind_of(outcome), wanted);
            assert!(took < SCHEDULING, "{took:?}");
        });
        assert!(clients.iter().all(|client| client.waiting().is_empty()));
    }
    assert_eq!(nodes.held(&name), 3);
    guard.unlock().unwrap();
    nodes.are_left_empty();
}

#[test]
fn a_closed_client_costs_its_member_only() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    let guard = nodes.lock(&name).lock().unwrap();
    nodes.clients[0].close();
    assert_eq!(nodes.held(&name), 2);
    assert!(guard.is_held() && guard.lost().is_none(), "{guard:?}");
    let (took, lost) = timed(|| guard.wait_lost(ms(300)));
    assert!(lost.is_none() && took >= ms(300), "{took:?}");
    nodes.clients[1].close();
    assert_eq!(guard.wait_lost(SOON), Some(Loss::Closed));
    assert!(!guard.is_held());
    drop(guard);
    nodes.are_left_empty();
}

#[test]
fn events_name_the_red_lock_of_their_member() {
    let (servers, name) = ([0; 3].map(|_| RedisServer::start()), fresh("red"));
    let events = Events::default();
    let clients: Vec<_> = servers
        .iter()
        .map(|server| Client::builder(&server.url()).observer(events.clone()).connect().unwrap())
        .collect();
    let lock = red(&clients, &name);
    let guard = lock.lock().unwrap();
    assert!(clients[0].get_lock(&name).force_unlock().unwrap());
    eventually(SOON, "the loss is told", || events.losses_of(&name) == 1);
    guard.unlock().unwrap();
    eventually(SOON, "all is told", || events.count_of("released") == 2);
    let told = events.take_with_groups();
    let wanted = ["acquired", "acquired", "acquired", "lost: Gone", "released", "released"];
    assert_eq!(told, wanted.map(|what| (format!("{what} {name}"), Some(lock.name().to_owned()))));
}

/// Three callers on five servers; a round is one request of a caller to each server.
#[test]
fn callers_that_share_the_votes_part_in_few_rounds() {
    const TAKES: u64 = 20;
    let (nodes, name) = (Nodes::start(5), fresh("red"));
    let callers: Vec<RedLock> = (0..3).map(|_| red(&Nodes::clients(&nodes.servers), &name)).collect();
    callers.iter().for_each(|lock| lock.lock().unwrap().unlock().unwrap());
    let before = nodes.servers[0].calls_of("evalsha");
    thread::scope(|scope| {
        for lock in &callers {
            scope.spawn(|| {
                (0..TAKES).for_each(|_| lock.try_lock_for(SOON).unwrap().expect("it is free soon").unlock().unwrap());
            });
        }
    });
    let calls = nodes.servers[0].calls_of("evalsha") - before;
    let each = calls as f64 / (TAKES * 3) as f64;
    assert!(each < 16.0, "{each} requests to a server for a take");
    nodes.are_left_empty();
}
