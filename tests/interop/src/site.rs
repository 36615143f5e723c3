//! The place where peers meet: one Redis, or a cluster.

use lockson_harness::percent::encode_all;
use lockson_harness::{RedisCluster, RedisServer};

/// One Redis, or a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Site<'s> {
    One(&'s RedisServer),
    Cluster(&'s RedisCluster),
}

impl<'s> Site<'s> {
    /// The options of `open` that lead a client here.
    pub(crate) fn options(self) -> String {
        match self {
            Self::One(server) => format!("address={}", encode_all(&[server.url()])),
            Self::Cluster(cluster) => {
                let place = |node: &RedisServer| format!("redis://{}", node.address());
                let places: Vec<String> = cluster.nodes().iter().map(place).collect();
                format!("mode=cluster address={}", encode_all(&places))
            }
        }
    }

    pub(crate) fn is_cluster(self) -> bool {
        matches!(self, Self::Cluster(_))
    }

    pub(crate) fn servers(self) -> &'s [RedisServer] {
        match self {
            Self::One(server) => std::slice::from_ref(server),
            Self::Cluster(cluster) => cluster.nodes(),
        }
    }

    /// The place of the server that stores a key, among the servers.
    pub(crate) fn place_of(self, key: &str) -> usize {
        match self {
            Self::One(_) => 0,
            Self::Cluster(cluster) => cluster.node_of(key),
        }
    }

    /// The question for the channels that have listeners.
    pub(crate) fn channels(self) -> redis::Cmd {
        let mut question = redis::cmd("PUBSUB");
        question.arg(match self {
            Self::One(_) => "CHANNELS",
            Self::Cluster(_) => "SHARDCHANNELS",
        });
        question
    }
}
