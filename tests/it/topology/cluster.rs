//! A Redis Cluster: routing by slot, slots that move, members that die.

mod closing;
mod failovers;
mod in_doubt;
mod kinds;
mod migrations;
mod moving;
mod names;
mod pub_sub;
mod redirects;
mod routing;
mod scanning;
mod slow;

use crate::support::prelude::*;

/// A proxy in front of each node, which the nodes announce in place of themselves.
fn proxies_of(cluster: &RedisCluster) -> Vec<Proxy> {
    let proxies: Vec<Proxy> = cluster.nodes().iter().map(|node| Proxy::start(node.address())).collect();
    for (node, proxy) in cluster.nodes().iter().zip(&proxies) {
        node.run(&["CONFIG", "SET", "cluster-announce-port", &proxy.port().to_string()]);
    }
    let knows = |port: u16| {
        let nodes = |node: &RedisServer| node.query::<String>(&["CLUSTER", "NODES"]);
        cluster.nodes().iter().all(|node| nodes(node).contains(&format!(":{port}@")))
    };
    eventually(SOON, "the nodes announce the proxies", || proxies.iter().all(|proxy| knows(proxy.port())));
    proxies
}
