//! A client that closes while one member is mute: what it has at the other members is given back.

use lockson::{Permits, Semaphore};
use lockson_harness::proxy::RuleHandle;

use super::proxies_of;
use crate::support::prelude::*;

const LIMIT: Duration = ms(600);
/// The master that falls silent.
const MUTE: usize = 1;
/// So many holds at each master: one after another, those of the mute one would come last by chance only.
const HOLDS: usize = 8;

/// Three masters that the client reaches through proxies.
struct Scene {
    cluster: RedisCluster,
    proxies: Vec<Proxy>,
    client: Client,
    notes: Events,
}

impl Scene {
    fn start(drop_timeout: Duration) -> Self {
        let cluster = RedisCluster::start(3, 0);
        let proxies = proxies_of(&cluster);
        let notes = Events::default();
        let client = Client::builder(&format!("redis+cluster://{}", proxies[0].address())).drop_timeout(drop_timeout);
        let client = client.observer(notes.clone()).connect().unwrap();
        Self { cluster, proxies, client, notes }
    }

    /// Names of keys, the same number at each master.
    fn names(&self, what: &str, at_each: usize) -> Vec<String> {
        let mut names: [Vec<String>; 3] = Default::default();
        while names.iter().any(|names| names.len() < at_each) {
            let name = fresh(what);
            let there = &mut names[self.cluster.node_of(&name)];
            if there.len() < at_each {
                there.push(name);
            }
        }
        names.concat()
    }

    /// The masters that answer.
    fn well(&self) -> impl Iterator<Item = &RedisServer> {
        self.cluster.nodes().iter().enumerate().filter(|(number, _)| *number != MUTE).map(|(_, node)| node)
    }

    fn close_with_a_mute_member(&self) {
        self.proxies[MUTE].mute(Scope::All, Direction::Both);
        let (took, ()) = timed(|| self.client.close());
        assert!(took < LIMIT + SCHEDULING, "{took:?}");
    }
}

#[test]
fn close_gives_back_at_every_member_but_the_mute_one() {
    let scene = Scene::start(LIMIT);
    let (plain, written) = (scene.names("closed", HOLDS), scene.names("written", HOLDS));
    let plain: Vec<_> = plain.iter().map(|name| scene.client.get_lock(name).lock().unwrap()).collect();
    // On a cluster, the release of such a lock takes several round trips.
    let lock = |name| scene.client.get_read_write_lock(name).write();
    let written: Vec<_> = written.iter().map(|name| lock(name).lock().unwrap()).collect();
    scene.close_with_a_mute_member();
    for node in scene.well() {
        assert_eq!(node.keys(), Vec::<String>::new());
    }
    for guard in plain.iter().chain(&written) {
        assert_eq!(guard.lost(), Some(Loss::Closed));
        assert_eq!(scene.notes.losses_of(guard.name()), 1);
        assert_eq!(scene.notes.of(guard.name()).last().map(String::as_str), Some("lost: Closed"));
    }
}

#[test]
fn close_gives_back_at_once_though_nothing_was_published() {
    let scene = Scene::start(SOON);
    let names = scene.names("closed", HOLDS);
    let held: Vec<_> = names.iter().map(|name| scene.client.get_lock(name).lock().unwrap()).collect();
    let marks: Vec<_> = scene.proxies.iter().map(|proxy| (proxy, proxy.mark())).collect();
    let replies: Vec<_> =
        scene.proxies.iter().map(|proxy| proxy.rule(When::script().always(), Then::HoldReply)).collect();
    thread::scope(|scope| {
        let closing = scope.spawn(|| scene.client.close());
        eventually(SOON / 2, "no release waits for the reply of another", || {
            marks.iter().all(|(proxy, mark)| proxy.fitting_since(*mark, &When::script()).len() >= HOLDS)
        });
        // The requests that follow, with the source of the script, pass.
        replies.iter().for_each(RuleHandle::remove);
        replies.iter().for_each(RuleHandle::release);
        joined(closing);
    });
    assert!(scene.cluster.nodes().iter().all(|node| node.keys().is_empty()));
    drop(held);
}

fn take_two_of_five(semaphore: &Semaphore) -> Permits {
    assert!(semaphore.set_permits_once(5).unwrap());
    semaphore.acquire(2).unwrap()
}

#[test]
fn permits_at_a_mute_member_cost_no_others() {
    let scene = Scene::start(LIMIT);
    let semaphores: Vec<_> = scene.names("semaphore", 2).iter().map(|name| scene.client.get_semaphore(name)).collect();
    let taken: Vec<_> = semaphores.iter().map(take_two_of_five).collect();
    let names = scene.names("closed", 2);
    let held: Vec<_> = names.iter().map(|name| scene.client.get_lock(name).lock().unwrap()).collect();
    scene.close_with_a_mute_member();
    for semaphore in &semaphores {
        let node = scene.cluster.node_of(semaphore.name());
        if node != MUTE {
            assert_eq!(scene.cluster.node(node).query::<String>(&["GET", semaphore.name()]), "5");
        }
    }
    for (name, node) in names.iter().map(|name| (name, scene.cluster.node_of(name))) {
        assert!(node == MUTE || !scene.cluster.node(node).query::<bool>(&["EXISTS", name]), "{name} is held");
    }
    drop((taken, held));
}

#[test]
fn releases_of_the_background_wait_for_no_mute_member() {
    let scene = Scene::start(LIMIT);
    let held: Vec<_> = scene.names("held", 1).iter().map(|name| scene.client.get_lock(name).lock().unwrap()).collect();
    let semaphores: Vec<_> = scene.names("semaphore", 1).iter().map(|name| scene.client.get_semaphore(name)).collect();
    let member = |semaphore: &Semaphore| scene.cluster.node_of(semaphore.name());
    let well: Vec<_> = semaphores.iter().filter(|semaphore| member(semaphore) != MUTE).collect();
    let taken: Vec<_> = well.iter().copied().map(take_two_of_five).collect();
    scene.well().for_each(|node| node.run(&["ACL", "SETUSER", "default", "-incrby"]));
    scene.well().for_each(RedisServer::reset_counters);
    drop(taken);
    eventually(SOON, "the background rests for longer than the close lasts", || {
        scene.well().all(|node| node.calls_of("evalsha") >= 3)
    });
    scene.well().for_each(|node| node.run(&["ACL", "SETUSER", "default", "+incrby"]));
    scene.close_with_a_mute_member();
    for semaphore in well {
        assert_eq!(scene.cluster.node(member(semaphore)).query::<String>(&["GET", semaphore.name()]), "5");
    }
    drop(held);
}
