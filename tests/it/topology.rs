//! Servers that are several, that move, or that are reached another way: Sentinel, Cluster, replicas, TLS.
//!
//! Short tests run in `make test` and `make slow`; the campaigns are ignored there and run in `make topology`.

mod cluster;
#[cfg(feature = "credentials")]
mod credentials;
mod durability;
mod examination;
mod link;
mod rights;
mod sentinel;
mod slow_link;
#[cfg(feature = "tls")]
mod tls;
