//! How a server refuses as a member of a cluster, when `HELLO` has not revealed the cluster.

use super::scene::{PLAIN, Scene, Way};
use crate::support::prelude::*;

pub(crate) const CLUSTERDOWN: Way = Way {
    word: "CLUSTERDOWN",
    when: "a cluster without `HELLO` lacks slots",
    advice: "connect with `redis+cluster://`",
    lines: CLUSTER,
    prepare: take_slots,
    fail: |scene| {
        scene.run(&["CLUSTER", "DELSLOTS", SPARE]);
        scene.wait_for_word("CLUSTERDOWN");
    },
    heal: |scene| scene.run(&["CLUSTER", "ADDSLOTS", SPARE]),
    ..PLAIN
};

pub(crate) const MOVED: Way = Way {
    word: "MOVED",
    when: "a cluster without `HELLO`, another server has the key",
    advice: "connect with `redis+cluster://`",
    lines: CLUSTER,
    prepare: take_slots,
    fail: |scene| {
        let other = CLUSTER.iter().fold(scene.version.builder(), |builder, line| builder.config(*line)).start();
        scene.run(&["CLUSTER", "MEET", "127.0.0.1", &other.port().to_string()]);
        let knows = |server: &RedisServer| server.query::<String>(&["CLUSTER", "NODES"]).matches(" connected").count();
        eventually(LONG, "the nodes know each other", || knows(&other) == 2 && knows(&scene.rig.server) == 2);
        with_slots("DELSLOTS", |words| scene.run(words));
        let takes_them = || {
            // The second server may still believe that the first server has the slots.
            with_slots("DELSLOTS", |words| drop(other.try_query::<()>(words)));
            with_slots("ADDSLOTS", |words| other.try_query::<()>(words).is_ok())
        };
        eventually(LONG, "the second node has the slots", takes_them);
        scene.wait_for_word("MOVED");
        *scene.other.lock() = Some(other);
    },
    holds_stay: false,
    ..PLAIN
};

fn take_slots(scene: &Scene) {
    with_slots("ADDSLOTS", |words| scene.run(words));
    let is_well = || scene.rig.server.query::<String>(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
    eventually(LONG, "the cluster is well", is_well);
}

/// Runs a command about all slots.
fn with_slots<T>(verb: &str, act: impl FnOnce(&[&str]) -> T) -> T {
    let slots: Vec<String> = (0..16_384).map(|slot| slot.to_string()).collect();
    let words: Vec<&str> = ["CLUSTER", verb].into_iter().chain(slots.iter().map(String::as_str)).collect();
    act(&words)
}

const CLUSTER: &[&str] = &["cluster-enabled yes", "cluster-node-timeout 2000", "rename-command HELLO \"\""];
/// A slot that none of the keys belongs to.
const SPARE: &str = "16383";
/// A small cluster agrees within this time.
const LONG: Duration = Duration::from_secs(30);
