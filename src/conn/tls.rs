//! TLS between socket and connection: the seam, and behind it what the feature `tls` adds.

#[cfg(feature = "tls")]
mod connector;
#[cfg(feature = "tls")]
mod session;
#[cfg(feature = "tls")]
mod trouble;
#[cfg(feature = "tls")]
mod unverified;

use std::io;
use std::sync::Arc;

use super::address::Address;
use super::stream::TimedStream;
use crate::error::Result;
use crate::time::Instant;
#[cfg(feature = "tls")]
pub(crate) use connector::connector;

/// Begins the session with the server at an address. Fails with `Config` where a file cannot be used, and with
/// `Connection` where it is not read by the deadline.
pub(crate) type Connector = Arc<dyn Fn(&Address, Instant) -> Result<Box<dyn Session>> + Send + Sync>;

/// The session of one connection: seals what is written and opens what is read.
pub(crate) trait Session: Send {
    /// Makes the handshake. The last message of the handshake is sent with the first request.
    fn shake_hands(&mut self, stream: &mut TimedStream, deadline: Instant) -> io::Result<()>;

    /// Writes all of `bytes`. After an error the last record is incomplete, and the server cannot open an incomplete
    /// record: it did not receive all of `bytes`.
    fn write_all(&mut self, stream: &mut TimedStream, bytes: &[u8], deadline: Instant) -> io::Result<()>;

    /// Reads the available bytes, at least one, by `deadline`, or at once where there is none: then the error
    /// `WouldBlock` stands for no byte.
    fn read(&mut self, stream: &mut TimedStream, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize>;

    /// Seals all of `bytes`, and writes what the system takes at once. The rest is kept and goes first in the next call.
    /// The server may have received all bytes that were sealed. An error of the stream is told by the next read.
    fn write_now(&mut self, stream: &mut TimedStream, bytes: &[u8]) -> io::Result<()>;

    /// Whether sealed bytes were not written.
    fn has_sealed(&self) -> bool;

    /// Whether decrypted bytes were not read.
    fn has_decrypted(&self) -> bool;

    /// Whether an idle connection is unusable: closed, or with bytes that belong to no request. Messages of TLS itself,
    /// like the session tickets after a handshake, are read here and do not count.
    fn is_stale(&mut self, stream: &mut TimedStream) -> bool;
}
