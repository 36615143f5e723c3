//! The programs of peers.

use std::path::{Path, PathBuf};
use std::process::Command;

/// The two places that peers take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seat {
    Rust,
    Java,
}

/// A program that speaks the peer protocol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Program {
    /// Lockson behind the protocol; the binary is beside the running binary.
    Lockson,
    /// Redisson behind the protocol, in one of the versions that `tests/interop/redisson/build.sh` builds.
    Redisson(&'static str),
}

/// The programs of both seats.
#[derive(Clone, Debug)]
pub(crate) struct Cast {
    pub(crate) rust: Program,
    pub(crate) java: Program,
}

impl Seat {
    pub(crate) const BOTH: [Self; 2] = [Self::Rust, Self::Java];

    pub(crate) fn other(self) -> Self {
        match self {
            Self::Rust => Self::Java,
            Self::Java => Self::Rust,
        }
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Rust => "Rust",
            Self::Java => "Java",
        }
    }
}

impl Cast {
    pub(crate) fn of(&self, seat: Seat) -> &Program {
        match seat {
            Seat::Rust => &self.rust,
            Seat::Java => &self.java,
        }
    }

    /// Whether real Redisson plays both parts, as a test of the checks themselves.
    pub(crate) fn is_rehearsal(&self) -> bool {
        self.rust != Program::Lockson
    }
}

impl Program {
    pub(crate) fn command(&self) -> Command {
        match self {
            Self::Lockson => {
                let this = std::env::current_exe().expect("a running program has a path");
                Command::new(this.with_file_name("lockson-peer"))
            }
            Self::Redisson(profile) => {
                let mut command = Command::new(workspace().join("tests/interop/redisson/peer.sh"));
                command.arg(profile);
                command
            }
        }
    }
}

/// The folder of the whole project.
pub(crate) fn workspace() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).expect("this crate is two folders below the workspace").to_owned()
}
