//! The words of the command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args as Options, CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::{free, run, serve};

/// Distributed locks of Lockson and of Java's Redisson, from the command line.
///
/// Exit codes: 0; 1 where the answer is no (`doctor` found a danger, `free` found nothing to free); 124 not within the
/// time; 125 where lockson itself failed. `lockson run --help` lists those of `run`.
#[derive(Debug, Parser)]
#[command(name = "lockson", version, arg_required_else_help = true)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) connection: Connection,
    #[command(subcommand)]
    pub(crate) command: Command,
}

impl Args {
    /// Reads the command line. A URL there counts more than a file of the environment.
    pub(crate) fn read() -> Result<Self, clap::Error> {
        let mut command = Self::command();
        let matches = command.try_get_matches_from_mut(std::env::args_os())?;
        let mut args = Self::from_arg_matches(&matches)?;
        let is_given = |option| matches.value_source(option) == Some(ValueSource::CommandLine);
        if is_given("url") {
            args.connection.redisson_yaml = None;
            if is_given("redisson_yaml") {
                let text = "the argument '--url <URL>' cannot be used with '--redisson-yaml <FILE>'";
                return Err(command.error(ErrorKind::ArgumentConflict, text));
            }
        }
        args.connection.gives_certificates = ["ca", "cert", "key", "server_name"].into_iter().any(is_given);
        Ok(args)
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(run::Options),
    /// Lists the locks whose names begin with PREFIX
    Ls {
        #[arg(default_value = "", value_name = "PREFIX")]
        beginning: String,
        #[command(flatten)]
        listing: Listing,
    },
    /// Shows who holds a lock, who waits for it, and when it ends
    Show {
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Lists who waits for a lock: of a fair lock in order, of others how many clients listen
    Waiters {
        name: String,
        #[command(flatten)]
        output: Output,
    },
    /// Waits until a lock is free, permits are there or a latch is open, and takes nothing
    Wait {
        name: String,
        /// Ends with 124 after this time, like 10s or 5m
        #[arg(long, value_parser = run::duration)]
        timeout: Option<Duration>,
        /// The name is that of a count-down latch, which looks like a semaphore in Redis
        #[arg(long)]
        latch: bool,
    },
    Free(free::Options),
    /// Says what endangers locks on the servers; ends with 1 where it found a danger
    Doctor {
        #[command(flatten)]
        output: Output,
    },
    /// Shows the locks whose names begin with PREFIX, again and again
    Top {
        #[arg(default_value = "", value_name = "PREFIX")]
        beginning: String,
        /// Time between two looks
        #[arg(long, value_parser = run::duration, default_value = "1s")]
        every: Duration,
        #[command(flatten)]
        listing: Listing,
    },
    Serve(serve::Options),
    /// Measures how long an acquisition and its release take on this server
    Bench {
        /// How long to measure
        #[arg(long, value_parser = run::duration, default_value = "10s")]
        time: Duration,
        #[command(flatten)]
        output: Output,
    },
    /// Prints the completions for a shell
    Completions {
        shell: Shell,
    },
    /// Prints the man page
    Man,
}

/// How many locks are listed, and how.
#[derive(Clone, Copy, Debug, Options)]
pub(crate) struct Listing {
    /// The most locks that are looked at
    #[arg(long, default_value_t = 1_000)]
    pub(crate) limit: usize,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// How an answer is printed.
#[derive(Clone, Copy, Debug, Options)]
pub(crate) struct Output {
    /// Prints JSON, one object a line
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where the locks are.
#[derive(Clone, Debug, Options)]
#[command(next_help_heading = "Where the locks are")]
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
    /// Authorities that signed the server's certificate, in place of the system's, beside those of --redisson-yaml
    #[arg(long, env = "LOCKSON_CA", value_name = "FILE", global = true)]
    pub(crate) ca: Option<PathBuf>,
    /// Certificate of this client, in place of that of --redisson-yaml
    #[arg(long, env = "LOCKSON_CERT", value_name = "FILE", requires = "key", global = true)]
    pub(crate) cert: Option<PathBuf>,
    /// Key of this client's certificate
    #[arg(long, env = "LOCKSON_KEY", value_name = "FILE", requires = "cert", global = true)]
    pub(crate) key: Option<PathBuf>,
    /// Name in the servers' certificates, where the URL has another
    #[arg(long, env = "LOCKSON_SERVER_NAME", value_name = "NAME", global = true)]
    pub(crate) server_name: Option<String>,
    /// Whether one of these four is an option, not a variable.
    #[arg(skip)]
    pub(crate) gives_certificates: bool,
}

impl Connection {
    /// The servers without logins, for people.
    pub(crate) fn place(&self) -> String {
        if let Some(file) = &self.redisson_yaml {
            return file.display().to_string();
        }
        let url = self.url.split('?').next().unwrap_or_default();
        let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
        let (servers, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
        format!("{scheme}://{}{path}", servers.rsplit('@').next().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_has_no_login() {
        let place = |url: &str| {
            let Args { connection, .. } = Args::parse_from(["lockson", "--url", url, "ls"]);
            connection.place()
        };
        assert_eq!(place("redis://localhost"), "redis://localhost");
        assert_eq!(place("rediss://me:secret@a:1/2?pass=secret"), "rediss://a:1/2");
        assert_eq!(
            place("redis+sentinel://me:secret@a,b/service?sentinel_pass=secret"),
            "redis+sentinel://a,b/service"
        );
        assert_eq!(place("redis+unix:///run/a@b"), "redis+unix:///run/a@b");
    }
}
