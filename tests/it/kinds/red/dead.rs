//! Servers that are dead, stopped or mute while a red lock is taken, re-entered, extended and released.

use super::{NODE, Nodes, red};
use crate::support::handed_over;
use crate::support::prelude::*;

#[test]
fn stopped_servers_cost_one_timeout_once() {
    let (nodes, name) = (Nodes::start(5), fresh("red"));
    let lock = nodes.lock(&name);
    let takes = |time: Duration| {
        let (end, mut times) = (Instant::now() + time, vec![]);
        while Instant::now() < end {
            let (took, guard) = timed(|| lock.lock().unwrap());
            guard.unlock().unwrap();
            times.push(took);
            thread::sleep(ms(5)); // a busy loop would slow the servers down
        }
        times.sort();
        (times[times.len() / 2], times[times.len() * 9 / 10], times[times.len() - 1], times.len())
    };
    let healthy = takes(ms(500));
    nodes.servers[1].pause();
    nodes.servers[3].pause();
    let (first, guard) = timed(|| lock.lock().unwrap());
    assert_eq!(guard.hold().members().len(), 3);
    assert!(first >= NODE && first < NODE + SCHEDULING / 5, "{first:?}");
    guard.unlock().unwrap();
    // Longer than the first marks of a server that is down.
    let dead = takes(ms(3_500));
    println!("median, p90, longest, number: {healthy:?} healthy, {dead:?} with two stopped, first {first:?}");
    assert!(dead.0 < healthy.0 * 2 + ms(2) && dead.1 < healthy.1 * 2 + NODE / 2, "{dead:?}");
    nodes.servers[1].resume();
    nodes.servers[3].resume();
    let back = || lock.lock().unwrap().hold().members().len() == 5;
    eventually(SOON, "all servers vote again", back);
    nodes.are_left_empty();
}

/// Everything that a holder does while two servers are stopped, each twice: the first finds out.
#[test]
fn a_holder_waits_for_stopped_servers_for_a_bounded_time() {
    let (nodes, name) = (Nodes::start(5), fresh("red"));
    let lock = nodes.lock(&name);
    let outer = lock.lock().unwrap();
    nodes.servers[0].pause();
    nodes.servers[2].pause();
    let mut times = vec![];
    for _ in 0..2 {
        let (reentry, inner) = timed(|| lock.lock().unwrap());
        assert!(inner.is_held() && lock.hold_count() == 2 && inner.hold().members().len() == 3);
        let (extension, extended) = timed(|| inner.extend(Duration::from_secs(50)));
        extended.unwrap();
        assert!(inner.remaining() > Duration::from_secs(40), "{:?}", inner.remaining());
        let (release, released) = timed(|| inner.unlock());
        released.unwrap();
        times.push([reentry, extension, release]);
    }
    assert!(outer.is_held() && lock.hold_count() == 1);
    let (last, released) = timed(|| outer.unlock());
    released.unwrap();
    // The outer hold still has the members at the stopped servers.
    println!("re-entry, extension, release, twice: {times:?}; last release {last:?}");
    assert!(times[0].iter().all(|time| *time < NODE * 2 + SCHEDULING / 4), "{times:?}");
    assert!(times[1].iter().all(|time| *time < NODE), "the servers are known to be down: {times:?}");
    assert!(last < NODE * 2 + SCHEDULING / 4, "{last:?}");
    assert_eq!([1, 3, 4].map(|node| nodes.servers[node].keys().len()), [0, 0, 0]);
    nodes.servers[0].resume();
    nodes.servers[2].resume();
    nodes.are_left_empty();
}

/// The inner hold has members at the servers that stop, and the outer one is released while the background still
/// writes the counts of the inner one.
#[test]
fn inner_and_outer_holds_are_released_at_stopped_servers() {
    let (nodes, name) = (Nodes::start(5), fresh("red"));
    let lock = nodes.lock(&name);
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    nodes.servers[1].pause();
    nodes.servers[4].pause();
    let (first, released) = timed(|| inner.unlock());
    released.unwrap();
    assert!(outer.is_held() && lock.hold_count() == 1);
    // The background tries after half a second, and then has the turns of these holds.
    thread::sleep(ms(700));
    let (last, released) = timed(|| outer.unlock());
    released.unwrap();
    // Each server that answers has its own time, however long the others took.
    assert_eq!([0, 2, 3].map(|node| nodes.servers[node].keys().len()), [0, 0, 0]);
    println!("inner release {first:?}, outer release {last:?}");
    assert!(first < NODE * 3 + SCHEDULING / 4 && last < NODE * 3 + SCHEDULING / 4, "{first:?}, {last:?}");
    nodes.servers[1].resume();
    nodes.servers[4].resume();
    nodes.are_left_empty();
}

#[test]
fn an_extension_of_too_few_members_is_an_error() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    let guard = nodes.lock(&name).lock().unwrap();
    nodes.servers[0].kill();
    nodes.servers[1].kill();
    let error = guard.extend(Duration::from_secs(60)).unwrap_err();
    assert!(error.is_transient(), "{error}");
    for dead in &nodes.servers[..2] {
        assert!(error.to_string().contains(&dead.port().to_string()), "{error}");
    }
    assert!(guard.is_held() && guard.remaining() < Duration::from_secs(31), "the old lease counts");
    assert!(guard.unlock().is_err());
    assert!(nodes.servers[2].keys().is_empty(), "the server that answers has it back");
}

#[test]
fn a_server_that_lost_its_lock_is_free_after_the_release() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    let guard = nodes.lock(&name).lock().unwrap();
    nodes.servers[0].run(&["DEL", &name]);
    nodes.servers[1].kill();
    guard.unlock().unwrap();
    let rival = red(&Nodes::clients(&nodes.servers), &name);
    rival.try_lock().unwrap().expect("two servers are free").unlock().unwrap();
}

/// Others need a majority of all servers, also of those that never granted the lock.
#[test]
fn a_release_needs_answers_of_most_servers_only() {
    let nodes = Nodes::start(3);
    let releases: [fn(&Lock, Guard) -> lockson::Result<()>; 2] = [
        |_, guard| guard.unlock(),
        |lock, guard| {
            guard.leave_to_unlock();
            lock.unlock()
        },
    ];
    // A dead server refuses at once, so the time limit is for slow machines.
    let red = |clients: &[Client], name: &str| red(clients, name).with_node_timeout(SOON);
    for release in releases {
        let held_at_the_last_two = |meanwhile: fn(&Nodes, &str)| {
            let (clients, name) = (Nodes::clients(&nodes.servers), fresh("red"));
            nodes.servers[0].kill();
            let lock = red(&clients, &name);
            let guard = lock.lock().unwrap();
            assert_eq!(guard.hold().members().len(), 2);
            nodes.servers[0].start_again();
            meanwhile(&nodes, &name);
            (release(&lock, guard), name)
        };
        let (outcome, name) = held_at_the_last_two(|nodes, _| nodes.servers[1].kill());
        outcome.unwrap();
        let rival = red(&Nodes::clients(&nodes.servers), &name);
        rival.try_lock().unwrap().expect("two servers are free").unlock().unwrap();
        nodes.servers[1].start_again();

        let (outcome, _) = held_at_the_last_two(|nodes, _| nodes.servers[1..].iter().for_each(RedisServer::kill));
        let error = outcome.unwrap_err();
        assert!(error.is_transient() && !error.is_lost(), "{error}");
        nodes.servers[1..].iter().for_each(RedisServer::start_again);

        let (outcome, _) = held_at_the_last_two(|nodes, name| {
            assert!(nodes.clients[1].get_lock(name).force_unlock().unwrap());
        });
        let error = outcome.unwrap_err();
        assert!(error.is_lost(), "one server of three is no protection: {error}");
    }
}

#[test]
fn a_dropped_guard_waits_for_no_dead_server() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    let guard = nodes.lock(&name).lock().unwrap();
    nodes.servers[0].pause();
    nodes.servers[1].pause();
    let (took, ()) = timed(|| drop(guard));
    assert!(took < NODE * 2 + SCHEDULING / 4, "{took:?}");
    nodes.servers[0].resume();
    nodes.servers[1].resume();
    nodes.are_left_empty();
}

/// A caller that tries again and again sends nothing more to a mute server, and no cleanup waits behind those for it.
#[test]
fn cleanups_for_a_mute_server_do_not_pile_up() {
    let (servers, name) = ([0; 3].map(|_| RedisServer::start()), fresh("red"));
    let proxies: Vec<Proxy> = servers.iter().map(|server| Proxy::start(server.address())).collect();
    let clients: Vec<Client> =
        proxies.iter().map(|proxy| Client::builder(&proxy.url()).connect_lazily().unwrap()).collect();
    let lock = red(&clients, &name);
    lock.lock().unwrap().unlock().unwrap();
    // The rival keeps one of the two servers that answer, so each take fails and is given back.
    let rival = Client::connect(&servers[1].url()).unwrap();
    let kept = rival.get_lock(&name).lock().unwrap();
    proxies[0].mute(Scope::All, Direction::Both);
    let mark = proxies[0].mark();
    let mut times = vec![];
    for _ in 0..15 {
        let (took, outcome) = timed(|| lock.try_lock());
        assert!(outcome.map_or(true, |guard| guard.is_none()));
        times.push(took);
        eventually(SOON, "it is given back at once", || servers[2].keys().is_empty());
        thread::sleep(ms(200));
    }
    let sent = proxies[0].fitting_since(mark, &When::script()).len();
    times.sort();
    println!("15 tries in 3 s: {sent} scripts to the mute server; median {:?}, longest {:?}", times[7], times[14]);
    assert!(sent <= 6, "{sent} scripts were sent to the mute server");
    assert!(times[7] < NODE, "most takes wait for the mute server: {times:?}");
    kept.unlock().unwrap();
    proxies[0].heal();
    let back = || lock.try_lock().unwrap().is_some_and(|guard| guard.hold().members().len() == 3);
    eventually(SOON, "all servers vote again", back);
    eventually(SOON, "no server keeps it", || servers.iter().all(|server| server.keys().is_empty()));
}

#[test]
fn too_few_servers_end_a_wait_after_the_outage_limit() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    let builder = |server: &RedisServer| Client::builder(&server.url()).outage_limit(ms(1_500));
    let clients: Vec<_> = nodes.servers.iter().map(|server| builder(server).connect_lazily().unwrap()).collect();
    let lock = red(&clients, &name);
    nodes.servers[0].kill();
    nodes.servers[2].pause();
    let (took, outcome) = timed(|| lock.lock());
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quorum);
    for dead in [0, 2] {
        assert!(error.to_string().contains(&nodes.servers[dead].port().to_string()), "{error}");
    }
    println!("{took:?}: {error}");
    assert!(took >= ms(1_500) && took < ms(1_500) + ms(500) + NODE + SCHEDULING, "{took:?}");
    nodes.servers[2].resume();
    lock.lock().unwrap().unlock().unwrap();
    nodes.are_left_empty();
}

/// A server that refuses for good will not vote later.
#[test]
fn a_majority_that_refuses_ends_a_wait_at_once() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    for server in &nodes.servers {
        server.run(&["ACL", "SETUSER", "weak", "on", ">secret", "~*", "&*", "+@all", "-hincrby", "-hset", "-pexpire"]);
    }
    let url = |node: usize, is_weak: bool| {
        let url = nodes.servers[node].url();
        if is_weak { url.replace("redis://", "redis://weak:secret@") } else { url }
    };
    let clients = |weak: [bool; 3]| -> Vec<Client> {
        let clients = weak.iter().enumerate().map(|(node, weak)| Client::builder(&url(node, *weak)));
        clients.map(|builder| builder.connect_lazily().unwrap()).collect()
    };
    let (took, outcome) = timed(|| red(&clients([true, true, false]), &name).lock());
    let error = outcome.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Quorum);
    assert!(error.to_string().matches("NOPERM").count() >= 2, "{error}");
    println!("{took:?}: {error}");
    assert!(took < SCHEDULING, "{took:?}");
    red(&clients([true, false, false]), &name).lock().unwrap().unlock().unwrap();
    nodes.are_left_empty();
}

/// The median time from a release to the grant of a waiter, with five servers and with three of them.
#[test]
fn a_waiter_is_woken_by_a_release() {
    let (nodes, name) = (Nodes::start(5), fresh("red"));
    let holder = nodes.lock(&name);
    let waiter = red(&Nodes::clients(&nodes.servers), &name);
    let wake = || {
        median(9, |_| {
            let guard = holder.lock().unwrap();
            handed_over(&waiter, || thread::sleep(ms(400)), || guard.unlock().unwrap())
        })
    };
    let healthy = wake();
    nodes.servers[4].pause();
    nodes.servers[0].pause();
    let with_two_stopped = wake();
    nodes.servers[4].resume();
    nodes.servers[0].resume();
    println!("woken after {healthy:?}, with two stopped {with_two_stopped:?}");
    assert!(healthy < ms(100) && with_two_stopped < ms(150), "{healthy:?}, {with_two_stopped:?}");
    nodes.are_left_empty();
}

/// The holder has three of five servers; the other two are free for a waiter, who gets no quorum from them.
#[test]
fn a_waiter_is_woken_though_a_minority_is_free() {
    let (nodes, name) = (Nodes::start(5), fresh("red"));
    let (holder, others) = (nodes.lock(&name), Nodes::clients(&nodes.servers));
    let waiter = red(&others, &name);
    let woken = median(5, |_| {
        let guard = holder.lock().unwrap();
        for client in &nodes.clients[3..] {
            assert!(client.get_lock(&name).force_unlock().unwrap());
        }
        handed_over(&waiter, || thread::sleep(ms(2_300)), || drop(guard))
    });
    println!("woken after {woken:?}");
    assert!(woken < ms(550) + STANDSTILLS, "{woken:?}");
    nodes.are_left_empty();
}

#[test]
fn a_lease_shorter_than_the_round_trip_is_never_held() {
    let (servers, name) = ([0; 3].map(|_| RedisServer::start()), fresh("red"));
    let proxies: Vec<Proxy> = servers.iter().map(|server| Proxy::start(server.address())).collect();
    let clients: Vec<Client> =
        proxies.iter().map(|proxy| Client::builder(&proxy.url()).connect_lazily().unwrap()).collect();
    red(&clients, &name).lock().unwrap().unlock().unwrap();
    let lock = red(&clients, &name).with_node_timeout(ms(15)).with_lease(ms(20));
    for proxy in &proxies {
        let late = lockson_harness::proxy::Then::DelayReply(ms(60));
        proxy.rule(When::script().always(), late);
    }
    match lock.try_lock_for(ms(400)) {
        Ok(guard) => assert!(guard.is_none(), "{guard:?}"),
        Err(error) => assert_eq!(error.kind(), ErrorKind::Quorum),
    }
    proxies.iter().for_each(Proxy::heal);
    eventually(SOON, "no server keeps it", || servers.iter().all(|server| server.keys().is_empty()));
    let healthy = red(&clients, &name);
    eventually(SOON, "it can be taken", || healthy.try_lock().unwrap().is_some());
}

#[test]
fn a_holder_is_not_told_that_its_lock_is_busy() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    let rival = Client::connect(&nodes.servers[2].url()).unwrap();
    let minority = rival.get_lock(&name).lock().unwrap();
    let lock = nodes.lock(&name);
    let outer = lock.lock().unwrap();
    nodes.servers[0].pause();
    for wait in [Duration::ZERO, NODE * 2] {
        let error = lock.try_lock_for(wait).map(|inner| inner.is_some()).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Quorum, "{error}");
    }
    nodes.servers[0].resume();
    eventually(SOON, "the lock is taken again", || lock.try_lock().is_ok_and(|inner| inner.is_some()));
    drop((outer, minority));
    nodes.are_left_empty();
}

/// One loss of three is none of the hold, and an answer that is missing is no loss either.
#[test]
fn a_mute_member_beside_a_lost_one_loses_no_hold() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    let lock = nodes.lock(&name);
    let outer = lock.lock().unwrap();
    assert!(nodes.clients[2].get_lock(&name).force_unlock().unwrap());
    let lost = outer.hold().members()[2].clone();
    eventually(SOON, "the loss is known", || lost.lost().is_some());
    nodes.servers[1].pause();
    let error = lock.try_lock().unwrap_err();
    assert!(outer.is_held() && outer.lost().is_none());
    assert_eq!(error.kind(), ErrorKind::Quorum, "the hold is not lost: {error}");
    nodes.servers[1].resume();
    let inner = lock.try_lock_for(SOON).unwrap().expect("this thread holds it");
    inner.unlock().unwrap();
    outer.unlock().unwrap();
    nodes.are_left_empty();
}

/// The holder has the first and the second server, and nothing can tell that of the second one.
#[test]
fn a_mute_server_may_be_locked() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    nodes.servers[2].pause();
    let guard = nodes.lock(&name).lock().unwrap();
    nodes.servers[2].resume();
    eventually(SOON, "the third is free", || nodes.held(&name) == 2);
    let others = Nodes::clients(&nodes.servers);
    assert!(red(&others, &name).is_locked().unwrap());
    nodes.servers[1].pause();
    let answer = red(&others, &name).is_locked();
    assert!(guard.is_held());
    assert!(answer.as_ref().map_or_else(|error| error.is_transient(), |locked| *locked), "{answer:?}");
    nodes.servers[1].resume();
    guard.unlock().unwrap();
    nodes.are_left_empty();
}

#[test]
fn an_open_question_counts_the_silent_among_all_servers() {
    let (nodes, name) = (Nodes::start(3), fresh("red"));
    let minority = nodes.clients[0].get_lock(&name).owned().lock().unwrap();
    nodes.servers[1..].iter().for_each(RedisServer::kill);
    let error = nodes.lock(&name).is_locked().unwrap_err();
    assert!(error.to_string().contains("2 of 3 locks"), "{error}");
    minority.unlock().unwrap();
}

/// The background has the turn of the hold at one mute server, and another one is mute since.
#[test]
fn a_release_ends_within_the_bound_of_a_call() {
    let (nodes, name, limit) = (Nodes::start(5), fresh("red"), Duration::from_secs(2));
    let client = |server: &RedisServer| Client::builder(&server.url()).command_timeout(limit).connect_lazily().unwrap();
    let clients: Vec<_> = nodes.servers.iter().map(client).collect();
    let lock = red(&clients, &name).with_node_timeout(limit);
    let (outer, inner) = (lock.lock().unwrap(), lock.lock().unwrap());
    nodes.servers[1].pause();
    inner.unlock().unwrap();
    // The background tries after half a second.
    thread::sleep(ms(700));
    nodes.servers[4].pause();
    let (took, released) = timed(|| outer.unlock());
    released.unwrap();
    assert!(took < limit + SCHEDULING, "{took:?}");
    assert_eq!([0, 2, 3].map(|node| nodes.servers[node].keys().len()), [0, 0, 0]);
    nodes.servers[1].resume();
    nodes.servers[4].resume();
    nodes.are_left_empty();
}
