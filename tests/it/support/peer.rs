//! A peer process, commanded in the words of `tests/interop/redisson/PROTOCOL.md`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use lockson_harness::{Peer, cargo};

/// Starts the peer in Rust and opens client 0 with these options.
pub(crate) fn open_peer(options: &str) -> Peer {
    Peer::open(Command::new(program()), options)
}

/// The peer's program, built from the present sources for a test of its own package: `cargo build` gives the library
/// other features of its dependencies, and would build the library once more.
fn program() -> &'static Path {
    static PROGRAM: OnceLock<PathBuf> = OnceLock::new();
    PROGRAM.get_or_init(|| {
        let test = std::env::current_exe().expect("a running program has a path");
        let folder = test.parent().and_then(Path::parent).expect("tests are in target/<profile>/deps");
        let (target, profile) = (folder.parent().expect("a profile is below the target"), folder.file_name());
        let profile = match profile.and_then(|name| name.to_str()) {
            Some("debug") => "test",
            Some(name) => name,
            None => panic!("no profile in {}", folder.display()),
        };
        let built = cargo("test")
            .args(["--no-run", "--quiet", "--offline", "--test", "peer", "--profile", profile, "--target-dir"])
            .arg(target)
            .current_dir(env!("CARGO_MANIFEST_DIR"))
            .output()
            .expect("cargo can be started");
        assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
        folder.join("lockson-peer")
    })
}
