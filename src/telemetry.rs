//! Observers that hand the events of a client to the facades of the ecosystem, built on public events alone.

#[cfg(feature = "tracing")]
mod tracing;

#[cfg(feature = "tracing")]
pub use self::tracing::TracingObserver;
