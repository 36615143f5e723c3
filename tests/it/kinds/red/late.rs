//! Answers and requests that come after the node time-out.

use std::thread;
use std::time::Duration;

use lockson::{Client, ErrorKind};
use lockson_harness::proxy::{Proxy, RuleHandle, Then, When};
use lockson_harness::{RedisServer, eventually};

use super::red;
use crate::support::{SOON, at_once, fresh, joined, kind_of, ms};

struct Scene {
    servers: [RedisServer; 3],
    proxies: Vec<Proxy>,
    clients: Vec<Client>,
}

impl Scene {
    fn start() -> Self {
        let servers = [0; 3].map(|_| RedisServer::start());
        let proxies: Vec<Proxy> = servers.iter().map(|server| Proxy::start(server.address())).collect();
        let clients = proxies.iter().map(|proxy| Client::builder(&proxy.url()).connect_lazily().unwrap()).collect();
        Self { servers, proxies, clients }
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
        let rivals = self.servers.each_ref().map(|server| Client::builder(&server.url()).connect_lazily().unwrap());
        let rival = red(&rivals, &name).with_node_timeout(SOON);
        let guard = rival.try_lock().unwrap().expect("nobody holds it");
        assert_eq!(guard.hold().members().len(), 3);
        guard.unlock().unwrap();
        eventually(SOON, "it is free", || self.is_free(&name));
    }
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
