//! The words of the command line.

use std::path::PathBuf;

use clap::{Args as Options, Parser, Subcommand};

use crate::run;

/// Distributed locks of Lockson and Java's Redisson, from the command line.
#[derive(Debug, Parser)]
#[command(name = "lockson", version, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Options),
}

/// Where the locks are.
#[derive(Debug, Options)]
pub(crate) struct Connection {
    /// URL of the server: redis://, redis+cluster://, redis+sentinel://, redis+replicated://, rediss:// for TLS
    #[arg(long, env = "LOCKSON_URL", hide_env_values = true, default_value = "redis://localhost", global = true)]
    pub(crate) url: String,
    /// Configuration of a Redisson client, in place of a URL
    #[arg(long, env = "LOCKSON_REDISSON_YAML", value_name = "FILE", global = true)]
    pub(crate) redisson_yaml: Option<PathBuf>,
    /// In front of every name
    #[arg(long, env = "LOCKSON_PREFIX", value_name = "PREFIX", global = true)]
    pub(crate) prefix: Option<String>,
    /// Authorities that signed the server's certificate, in place of the system's
    #[arg(long, env = "LOCKSON_CA", value_name = "FILE", global = true)]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate of this client
    #[arg(long, env = "LOCKSON_CERT", value_name = "FILE", requires = "key", global = true)]
    pub(crate) cert: Option<PathBuf>,
    /// Key of this client's certificate
    #[arg(long, env = "LOCKSON_KEY", value_name = "FILE", requires = "cert", global = true)]
    pub(crate) key: Option<PathBuf>,
}
