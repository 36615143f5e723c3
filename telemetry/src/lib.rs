//! Observers that hand the events of Lockson's clients to the crates `metrics` and `tracing`.
//!
//! Each has a cargo feature of its name, none of which is on by default. A tuple of two observers is an observer.
#![cfg_attr(docsrs, feature(doc_cfg))]

#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "metrics")]
pub use self::metrics::MetricsObserver;
#[cfg(feature = "tracing")]
pub use self::tracing::TracingObserver;

/// The Rust in the README compiles.
#[cfg(all(doctest, feature = "metrics", feature = "tracing"))]
#[doc = include_str!("../README.md")]
struct Readme;
