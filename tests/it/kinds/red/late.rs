//! Answers and requests that come after the node time-out.

use lockson_harness::proxy::RuleHandle;

use super::red;
use crate::support::prelude::*;

struct Scene {
    servers: [RedisServer; 3],
    proxies: [Proxy; 3],
    clients: Vec<Client>,
}

impl Scene {
    fn start() -> Self {
        let servers = [0; 3].map(|_| RedisServer::start());
        let proxies = servers.each_ref().map(|server| Proxy::start(server.address()));
        let clients = proxies.iter().map(|proxy| Client::builder(&proxy.url()).connect_lazily().unwrap()).collect();
        Self { servers, proxies, clients }
    }

    /// Clients of their own, past the proxies.
    fn direct(&self) -> [Client; 3] {
        self.servers.each_ref().map(|server| Client::builder(&server.url()).connect_lazily().unwrap())
    }

    fn is_free(&self, name: &str) -> bool {
        self.servers.iter().all(|server| server.query::<i64>(&["EXISTS", name]) == 0)
    }

    /// Lets two of three acquires fail by this fault, and checks that all servers are free within seconds and stay so,
    /// also after the held bytes went on.
    fn check(&self, then: &Then) {
        let name = fresh("red");
        let lock = red(&self.clients, &name);
        lock.lock().unwrap().unlock().unwrap();
        let takes = When::script().containing(&name);
        let rules: Vec<_> =
            self.proxies[..2].iter().map(|proxy| proxy.rule(takes.clone().times(1), then.clone())).collect();
        assert_eq!(kind_of(lock.try_lock()), ErrorKind::Quorum, "{then:?}");
        for (rule, proxy) in rules.iter().zip(&self.proxies) {
            let late = rule.wait_hit(SOON);
            // The cleanup fences the late request first.
            let cleanup = proxy.wait_for_since(late.number + 1, &takes, SOON);
            proxy.wait_fate(&cleanup, SOON);
        }
        eventually(Duration::from_secs(4), "the late grants are given back", || self.is_free(&name));
        rules.iter().for_each(|rule| rule.release());
        for _ in 0..20 {
            assert!(self.is_free(&name), "{then:?}: taken by a late request");
            thread::sleep(ms(20));
        }
        let rival = red(&self.direct(), &name).with_node_timeout(SOON);
        let guard = rival.try_lock().unwrap().expect("nobody holds it");
        assert_eq!(guard.hold().members().len(), 3);
        guard.unlock().unwrap();
        eventually(SOON, "it is free", || self.is_free(&name));
    }
}

/// The start of a server is asked when a connection opens, and its vote comes later.
#[test]
fn a_server_that_restarts_before_its_vote_has_none() {
    let (scene, name) = (Scene::start(), fresh("red"));
    let starts = When::command("INFO").always();
    let old_starts = scene.proxies.each_ref().map(|proxy| {
        let info = format!("run_id:{}\r\nuptime_in_seconds:100000\r\n", proxy.port());
        proxy.rule(starts.clone(), Then::AnswerInstead(format!("${}\r\n{info}\r\n", info.len()).into_bytes()))
    });
    let lock = red(&scene.clients, &name).with_node_timeout(SOON).with_rejoin_after(Duration::from_secs(60));
    lock.lock().unwrap().unlock().unwrap();
    let held = red(&scene.direct(), &name).lock().unwrap();
    let votes: Vec<_> = scene.proxies[..2]
        .iter()
        .map(|proxy| proxy.rule(When::script().containing(&name), Then::HoldRequest))
        .collect();
    thread::scope(|scope| {
        let rival = scope.spawn(|| lock.try_lock().map(drop));
        for ((vote, old_start), server) in votes.iter().zip(&old_starts).zip(&scene.servers) {
            vote.wait_hit(SOON);
            old_start.remove();
            server.restart();
            vote.release();
        }
        assert_eq!(kind_of(joined(rival)), ErrorKind::Quorum);
    });
    let why = || lock.try_lock().map(drop).expect_err("another client holds the lock").to_string();
    eventually(SOON, "two servers say why they have no vote", || why().matches("started").count() == 2);
    assert!(scene.servers[..2].iter().all(|server| server.keys().is_empty()));
    drop(held);
}

/// A clock that runs fast takes the time of its server from the lease, as a shorter time to live does here.
#[test]
fn clocks_fast_within_the_margin_make_no_two_holders() {
    let (scene, name) = (Scene::start(), fresh("red"));
    let lock = red(&scene.clients, &name).with_node_timeout(SOON).with_lease(Duration::from_secs(2));
    let guard = lock.lock().unwrap();
    scene.proxies.iter().for_each(|proxy| proxy.new_connections(NewConnections::Refuse));
    scene.proxies.iter().for_each(|proxy| proxy.cut(Scope::All));
    for server in &scene.servers {
        let left: i64 = server.query(&["PTTL", &name]);
        server.run(&["PEXPIRE", &name, &(left - 48).to_string()]);
    }
    let rival = red(&scene.direct(), &name).with_node_timeout(SOON);
    let taken = AtomicBool::new(false);
    thread::scope(|scope| {
        let holder = scope.spawn(|| {
            while {
                // Read first: the belief is later than the grant, or the grant was not seen.
                let is_taken = taken.load(Ordering::SeqCst);
                let believes = guard.is_held();
                assert!(!(is_taken && believes), "two holders at once");
                believes
            } {}
        });
        let theirs = rival.lock().unwrap();
        taken.store(true, Ordering::SeqCst);
        joined(holder);
        theirs.unlock().unwrap();
    });
}

fn check_each(faults: [Then; 4]) {
    at_once(faults, |then| Scene::start().check(&then));
}

#[test]
fn a_late_grant_is_given_back() {
    check_each([Then::HoldReply, Then::DelayReply(ms(250)), Then::SwallowReply, Then::CutReplyAfter(1)]);
}

#[test]
fn a_late_request_takes_nothing() {
    check_each([Then::HoldRequest, Then::DelayRequest(ms(250)), Then::SwallowRequest, Then::CutRequestAfter(10)]);
}

/// A majority answers in time and the lock is held; the late answer of the third is given back meanwhile.
#[test]
fn a_late_grant_of_a_minority_is_given_back_while_it_is_held() {
    let (scene, name) = (Scene::start(), fresh("red"));
    let lock = red(&scene.clients, &name);
    lock.lock().unwrap().unlock().unwrap();
    let rule = scene.proxies[2].rule(When::script().containing(&name).times(1), Then::HoldReply);
    let guard = lock.lock().unwrap();
    assert_eq!(guard.hold().members().len(), 2);
    let is_given_back = || scene.servers[2].query::<i64>(&["EXISTS", &name]) == 0;
    eventually(Duration::from_secs(4), "the late grant is given back", is_given_back);
    rule.release();
    thread::sleep(ms(200));
    assert!(guard.is_held() && is_given_back());
    guard.unlock().unwrap();
    eventually(SOON, "it is free", || scene.is_free(&name));
}

/// The answers are held until every server has its request: a re-entry that asked one server after another would not
/// come to the second one.
#[test]
fn a_re_entry_asks_all_servers_at_once() {
    let (scene, name) = (Scene::start(), fresh("red"));
    let lock = red(&scene.clients, &name).with_node_timeout(SOON);
    let outer = lock.lock().unwrap();
    let takes = When::script().containing(&name).always();
    let rules: Vec<_> = scene.proxies.iter().map(|proxy| proxy.rule(takes.clone(), Then::HoldReply)).collect();
    thread::scope(|scope| {
        let answering = scope.spawn(|| {
            rules.iter().for_each(|rule| drop(rule.wait_hit(SOON)));
            rules.iter().for_each(RuleHandle::remove);
            rules.iter().for_each(RuleHandle::release);
        });
        let inner = lock.try_lock().unwrap().expect("this thread holds it");
        assert_eq!((inner.hold().members().len(), lock.hold_count()), (3, 2));
        inner.unlock().unwrap();
        joined(answering);
    });
    outer.unlock().unwrap();
    eventually(SOON, "it is free", || scene.is_free(&name));
}

/// One server grants and is mute then, the others are mute at once: giving back does not take the time once more.
#[test]
fn a_take_in_vain_ends_within_the_bound_of_a_call() {
    let (scene, name) = (Scene::start(), fresh("red"));
    let limit = Duration::from_secs(2);
    let client = |proxy: &Proxy| Client::builder(&proxy.url()).command_timeout(limit).connect_lazily().unwrap();
    let clients: Vec<_> = scene.proxies.iter().map(client).collect();
    let lock = red(&clients, &name).with_node_timeout(limit);
    lock.lock().unwrap().unlock().unwrap();
    let takes = When::script().containing(&name);
    let _rules: Vec<_> = scene
        .proxies
        .iter()
        .enumerate()
        .map(|(place, proxy)| {
            let rule = takes.clone().always();
            proxy.rule(if place == 0 { rule.nth(2) } else { rule }, Then::SwallowRequest)
        })
        .collect();
    let (took, outcome) = timed(|| lock.try_lock());
    assert_eq!(kind_of(outcome), ErrorKind::Quorum);
    assert!(took < limit + ms(50) + SCHEDULING, "{took:?}");
}
