//! A request without an answer, whose slot moves meanwhile, has its effect once.

use lockson_harness::proxy::RuleHandle;

use super::proxies_of;
use crate::support::faults::fences;
use crate::support::prelude::*;

/// Two masters that the client reaches through proxies.
struct Scene {
    cluster: RedisCluster,
    proxies: Vec<Proxy>,
    client: Client,
    name: String,
    slot: u16,
    /// The master that has the slot, and the other one.
    from: usize,
    to: usize,
}

impl Scene {
    fn start() -> Scene {
        let cluster = RedisCluster::start(2, 0);
        let proxies = proxies_of(&cluster);
        let url = format!("redis+cluster://{}", proxies[0].address());
        let client = Client::builder(&url).command_timeout(ms(600)).drop_timeout(ms(300)).connect().unwrap();
        let name = fresh("in-doubt");
        let slot = slot_of(&name);
        let from = cluster.owner_of(slot);
        Scene { cluster, proxies, client, name, slot, from, to: 1 - from }
    }

    fn is_held(&self, node: usize) -> bool {
        self.cluster.node(node).query(&["EXISTS", &self.name])
    }

    /// Takes the lock while its slot moves: the first copy of the request is on its way to the old master all the time.
    fn take_with_the_original_on_its_way(&self) -> (RuleHandle, Guard) {
        let name = self.name.clone();
        let acquire = When::script().that(move |request| (0..5).any(|word| request.text(word) == name));
        let held = self.proxies[self.from].rule(acquire.times(1), Then::HoldRequest);
        let taken = std::thread::scope(|scope| {
            let moves = scope.spawn(|| {
                held.wait_hit(SOON);
                self.cluster.move_slot(self.slot, self.to);
            });
            let taken = self.client.get_lock(&self.name).try_lock_for(SOON).unwrap().expect("nobody else wants it");
            moves.join().unwrap();
            taken
        });
        (held, taken)
    }
}

#[test]
fn a_copy_at_the_former_master_never_takes_the_lock() {
    let scene = Scene::start();
    let (held, guard) = scene.take_with_the_original_on_its_way();
    let original = held.wait_hit(SOON);
    assert!(scene.is_held(scene.to));
    guard.unlock().unwrap();
    let fence = scene.proxies[scene.from].wait_for_since(original.number, &fences(), SOON);
    assert!(
        matches!(scene.proxies[scene.from].wait_fate(&fence, SOON), Fate::Answered(_)),
        "it is fenced where it went"
    );
    // The slot comes back, and then the original arrives.
    scene.cluster.move_slot(scene.slot, scene.from);
    held.release();
    let fate = scene.proxies[scene.from].wait_fate(&original, SOON);
    assert!(matches!(fate, Fate::Failed(_)), "the master ran it: {fate:?}");
    assert!(!scene.is_held(scene.from));
}

#[test]
fn a_copy_that_cannot_be_fenced_is_given_back_where_its_slot_is() {
    let scene = Scene::start();
    for node in scene.cluster.nodes() {
        node.run(&["ACL", "SETUSER", "default", "-client|kill"]);
    }
    let (held, guard) = scene.take_with_the_original_on_its_way();
    let original = held.wait_hit(SOON);
    guard.unlock().unwrap();
    scene.cluster.move_slot(scene.slot, scene.from);
    held.release();
    let fate = scene.proxies[scene.from].wait_fate(&original, SOON);
    assert!(matches!(fate, Fate::Answered(_)), "nothing stopped it: {fate:?}");
    eventually(SOON, "the lock of nobody is given back", || !scene.is_held(scene.from));
}
