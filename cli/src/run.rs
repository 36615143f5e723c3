//! `lockson run`: a command under a lock.

use std::process::ExitCode;

use clap::Args;

use crate::Failure;
use crate::args::Connection;

/// Runs a command under a lock.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Name of the lock
    name: String,
}

/// Runs the command.
pub(crate) fn run(_: &Connection, options: &Options) -> Result<ExitCode, Failure> {
    Err(options.name.clone().into())
}
