//! A peer process, commanded in the words of `tests/interop/redisson/PROTOCOL.md`.

use std::sync::OnceLock;

use lockson_harness::Peer;

use super::program::built;
use crate::support::prelude::*;

/// Starts the peer in Rust and opens client 0 with these options.
pub(crate) fn open_peer(options: &str) -> Peer {
    Peer::open(Command::new(program()), options)
}

/// The peer's program, built from the present sources for a test of its own package: `cargo build` gives the library
/// other features of its dependencies, and would build the library once more.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| built("test", &["--no-run", "--test", "peer"]).join("lockson-peer"))
}
