//! What the URL of a client leads to: a server, a cluster, or a master whose place others tell.

use std::sync::Arc;

use super::address::{Address, Endpoint};

/// The server or the servers of a client. The text forms never show a password.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    Fixed(Address),
    /// Some members of a cluster. The first address has login and database, which are the same for all members.
    Cluster(Address, Vec<Endpoint>),
    /// The master of a service, where most of the sentinels say.
    Sentinel(Service),
    /// The master among the nodes. The first address has login and database, which are the same for all nodes.
    Replicated(Address, Vec<Endpoint>),
}

/// A master that sentinels watch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Service {
    pub(crate) name: Arc<str>,
    /// The sentinels, with the login there.
    pub(crate) sentinels: Vec<Address>,
    /// Login and database of the master; its endpoint changes.
    pub(crate) master: Address,
}

impl Target {
    /// An address with the settings of all servers.
    #[cfg(any(feature = "credentials", feature = "tls"))]
    pub(crate) fn address(&self) -> &Address {
        match self {
            Self::Fixed(address) | Self::Cluster(address, _) | Self::Replicated(address, _) => address,
            Self::Sentinel(service) => &service.master,
        }
    }

    /// The name of the server in texts and events, without credentials.
    pub(crate) fn label(&self) -> String {
        match self {
            Self::Fixed(address) => address.to_string(),
            Self::Cluster(_, members) => list(members),
            Self::Sentinel(service) => format!("{}/{}", service.name, service.master.database),
            Self::Replicated(node, nodes) => format!("{}/{}", list(nodes), node.database),
        }
    }

    /// What decides about locks, without credentials and database: the server, or the whole cluster.
    pub(crate) fn authority(&self) -> String {
        match self {
            Self::Fixed(address) => address.endpoint.to_string(),
            Self::Sentinel(service) => {
                format!("{}@{}", service.name, list(service.sentinels.iter().map(|sentinel| &sentinel.endpoint)))
            }
            Self::Cluster(_, hosts) | Self::Replicated(_, hosts) => list(hosts),
        }
    }
}

/// The endpoints in the order of their text, so that the same servers in another order are the same list.
fn list<'a>(endpoints: impl IntoIterator<Item = &'a Endpoint>) -> String {
    let mut endpoints: Vec<_> = endpoints.into_iter().map(ToString::to_string).collect();
    endpoints.sort();
    endpoints.join(",")
}
