//! A Redis Cluster of real servers on loopback, whose slots move and whose masters die on demand.

mod moves;
mod view;

use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::Mutex;

use crate::{RedisServer, RedisServerBuilder, eventually, pids};
use view::View;

pub use view::slot_of;

/// Masters that share the slots evenly, and their replicas.
///
/// A node is named by its index: first all masters, then the replicas, those of the first master first. An index never
/// changes, also when a replica becomes a master. A paused node counts as down. All nodes end with the test process, as a [`RedisServer`] does.
#[derive(Debug)]
pub struct RedisCluster {
    nodes: Vec<RedisServer>,
    ids: Vec<String>,
    /// One slot changes hands at a time, because the nodes count epochs without asking each other. Keys move one way at
    /// a time, because two nodes that send keys to each other wait for each other.
    moving: Mutex<()>,
}

impl RedisCluster {
    /// Starts a cluster, and waits until all nodes agree that the cluster is well.
    ///
    /// # Panics
    ///
    /// Panics when the nodes do not agree within 30 seconds.
    #[track_caller]
    pub fn start(masters: usize, replicas_per_master: usize) -> RedisCluster {
        RedisCluster::start_with(masters, replicas_per_master, |builder| builder)
    }

    /// Starts a cluster whose nodes have further settings.
    ///
    /// # Panics
    ///
    /// Panics when the nodes do not agree within 30 seconds.
    #[track_caller]
    pub fn start_with(
        masters: usize,
        replicas_per_master: usize,
        settings: impl Fn(RedisServerBuilder) -> RedisServerBuilder,
    ) -> RedisCluster {
        let nodes: Vec<RedisServer> = (0..masters * (1 + replicas_per_master))
            .map(|_| LINES.iter().fold(RedisServer::builder(), |builder, line| builder.config(*line)))
            .map(|builder| settings(builder).start())
            .collect();
        let ids = nodes.iter().map(|node| node.query(&["CLUSTER", "MYID"])).collect();
        let cluster = RedisCluster { nodes, ids, moving: Mutex::new(()) };
        cluster.form(masters, replicas_per_master);
        cluster
    }

    /// The shared cluster of this process: three masters without replicas, started at the first call.
    ///
    /// For tests that need only key names of their own: never stop a shared node, never move a shared slot.
    pub fn shared() -> &'static RedisCluster {
        static SHARED: OnceLock<RedisCluster> = OnceLock::new();
        SHARED.get_or_init(|| RedisCluster::start(3, 0)) // never dropped: the leashes end the nodes with the process
    }

    /// The address of the cluster: all nodes, separated by commas.
    pub fn url(&self) -> String {
        let places: Vec<String> = self.nodes.iter().map(|node| node.address().to_string()).collect();
        format!("redis+cluster://{}", places.join(","))
    }

    /// The address of each node as a single server.
    pub fn urls(&self) -> Vec<String> {
        self.nodes.iter().map(RedisServer::url).collect()
    }

    /// All nodes, by index.
    pub fn nodes(&self) -> &[RedisServer] {
        &self.nodes
    }

    /// The node with this index.
    pub fn node(&self, index: usize) -> &RedisServer {
        &self.nodes[index]
    }

    /// The indexes of the masters that have slots.
    ///
    /// # Panics
    ///
    /// Panics when no node runs.
    #[track_caller]
    pub fn masters(&self) -> Vec<usize> {
        let view = self.view();
        (0..self.nodes.len()).filter(|&index| view.has_slots(&self.ids[index])).collect()
    }

    /// The indexes of the replicas of a master, running or not.
    #[track_caller]
    pub fn replicas_of(&self, master: usize) -> Vec<usize> {
        let view = self.view();
        (0..self.nodes.len()).filter(|&index| view.follows(&self.ids[index], &self.ids[master])).collect()
    }

    /// The master that serves the key's slot; while a slot moves, the source.
    ///
    /// # Panics
    ///
    /// Panics when no node serves the slot.
    #[track_caller]
    pub fn node_of(&self, key: impl AsRef<[u8]>) -> usize {
        self.owner_of(slot_of(key))
    }

    /// The master that serves a slot; while the slot moves, the source.
    ///
    /// # Panics
    ///
    /// Panics when no node serves the slot.
    #[track_caller]
    pub fn owner_of(&self, slot: u16) -> usize {
        let view = self.view();
        let owner = view.owner_of(slot).and_then(|id| self.ids.iter().position(|own| *own == id));
        owner.unwrap_or_else(|| panic!("no node serves slot {slot}"))
    }

    /// Kills a node with SIGKILL, and does not wait for the others to notice.
    pub fn kill(&self, index: usize) {
        self.nodes[index].kill();
    }

    /// Kills a master with SIGKILL, waits until a replica serves the master's slots, and returns the replica's index.
    ///
    /// # Panics
    ///
    /// Panics when no replica has taken over within 30 seconds.
    #[track_caller]
    pub fn fail_over(&self, master: usize) -> usize {
        let replicas = self.replicas_of(master);
        self.kill(master);
        self.wait_for_new_master(&replicas)
    }

    /// Makes a replica the master at once, without asking the other nodes; the old master may run or not.
    ///
    /// # Panics
    ///
    /// Panics when the replica is not the master within 30 seconds.
    #[track_caller]
    pub fn take_over(&self, replica: usize) {
        self.nodes[replica].run(&["CLUSTER", "FAILOVER", "TAKEOVER"]);
        self.wait_for_new_master(&[replica]);
    }

    /// Starts a killed node with its place in the cluster, without its data, and waits until all running nodes agree.
    ///
    /// # Panics
    ///
    /// Panics when the nodes do not agree within 30 seconds.
    #[track_caller]
    pub fn start_again(&self, index: usize) {
        self.nodes[index].start_again();
        self.wait_until_well();
    }

    /// Waits until each running replica of a master has all writes of the master so far.
    ///
    /// # Panics
    ///
    /// Panics when a replica lags behind for 30 seconds.
    #[track_caller]
    pub fn wait_until_synced(&self, master: usize) {
        let written = offset(&self.nodes[master], "master_repl_offset").expect("the master runs");
        for replica in self.replicas_of(master) {
            let node = &self.nodes[replica];
            eventually(BOUND, "the replica has all writes", || {
                let up = || node.info("master_link_status").as_deref() == Some("up");
                !responds(node) || up() && offset(node, "slave_repl_offset").is_some_and(|read| read >= written)
            });
        }
    }

    /// Waits until all running nodes say `cluster_state:ok` and have the same view of slots and roles.
    ///
    /// # Panics
    ///
    /// Panics when the nodes do not agree within 30 seconds.
    #[track_caller]
    pub fn wait_until_well(&self) {
        eventually(BOUND, "the nodes agree that the cluster is well", || self.is_well());
    }

    /// Whether all running nodes say `cluster_state:ok` and have the same view of slots and roles.
    pub fn is_well(&self) -> bool {
        let running: Vec<&RedisServer> = self.nodes.iter().filter(|node| responds(node)).collect();
        let first = running.first().and_then(|node| View::of(node));
        first.is_some_and(|first| {
            let agrees = |node: &RedisServer| View::of(node).is_some_and(|view| view.agrees_with(&first));
            running.iter().all(|node| is_ok(node) && agrees(node))
        })
    }

    /// The view of a node that is surely not cut off: the first one that says that the cluster is well.
    #[track_caller]
    fn view(&self) -> View {
        let running = || self.nodes.iter().filter(|node| responds(node));
        let chosen = running().find(|node| is_ok(node)).or_else(|| running().next());
        chosen.and_then(View::of).expect("a node runs and answers")
    }

    /// The first of these nodes that is a master in the view of all running nodes, once the cluster is well.
    #[track_caller]
    fn wait_for_new_master(&self, candidates: &[usize]) -> usize {
        let mut winner = None;
        eventually(BOUND, "a replica takes over", || {
            winner = candidates.iter().copied().find(|&index| {
                let seen = |node: &RedisServer| View::of(node).is_some_and(|view| view.has_slots(&self.ids[index]));
                self.nodes.iter().filter(|node| responds(node)).all(|node| is_ok(node) && seen(node))
            });
            winner.is_some()
        });
        winner.expect("the wait has ended")
    }

    #[track_caller]
    fn form(&self, masters: usize, replicas_per_master: usize) {
        for (index, node) in self.nodes.iter().enumerate() {
            node.run(&["CLUSTER", "SET-CONFIG-EPOCH", &(index + 1).to_string()]);
            if index < masters {
                let [from, to] = [index, index + 1].map(|part| part * usize::from(SLOTS) / masters);
                // Ranges of slots are known from Redis 7.0 on.
                let slots: Vec<String> = (from..to).map(|slot| slot.to_string()).collect();
                node.run(
                    &["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(String::as_str)).collect::<Vec<_>>(),
                );
            }
            self.nodes[0].run(&["CLUSTER", "MEET", "127.0.0.1", &node.port().to_string()]);
        }
        let all = self.nodes.len();
        eventually(BOUND, "the nodes know each other", || {
            self.nodes.iter().all(|node| View::of(node).is_some_and(|view| view.counts(all)))
        });
        for (index, node) in self.nodes.iter().enumerate().skip(masters) {
            let master = (index - masters) / replicas_per_master;
            node.run(&["CLUSTER", "REPLICATE", &self.ids[master]]);
        }
        self.wait_until_well();
        (0..masters).for_each(|master| self.wait_until_synced(master));
    }
}

/// Whether the node runs and is not paused.
fn responds(node: &RedisServer) -> bool {
    node.is_running() && !pids::is_stopped(node.pid())
}

fn is_ok(node: &RedisServer) -> bool {
    let answer = node.try_query::<String>(&["CLUSTER", "INFO"]);
    answer.is_ok_and(|text| text.contains("cluster_state:ok"))
}

fn offset(node: &RedisServer, field: &str) -> Option<u64> {
    let text: String = node.try_query(&["INFO", "replication"]).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
    line.trim_end().parse().ok()
}

/// A node counts as failed after a second. A replica may take over however old its data is.
const LINES: [&str; 4] = [
    "cluster-enabled yes",
    "cluster-node-timeout 1000",
    "cluster-replica-validity-factor 0",
    "repl-diskless-sync-delay 0",
];
const SLOTS: u16 = 16_384;
const BOUND: Duration = Duration::from_secs(30);
