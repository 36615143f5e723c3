//! The settings of a server before the start.

use std::env;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use parking_lot::Mutex;

use super::RedisServer;
use super::instance::{Instance, Plan};
#[cfg(feature = "certificates")]
use crate::certificates::Certificate;
use crate::ports::Port;

/// Looks for the server program. Returns what to do if there is none.
pub fn missing_server() -> Option<String> {
    let program = usual_program();
    let found = Command::new(&program).arg("--version").stdout(Stdio::null()).status();
    let advice = "install it (`apt-get install redis-server`, `brew install redis`)";
    found.is_err().then(|| format!("there is no {} here: {advice}", program.display()))
}

/// The program in `LOCKSON_REDIS_SERVER`, else `redis-server`.
fn usual_program() -> PathBuf {
    let named = env::var_os("LOCKSON_REDIS_SERVER").filter(|program| !program.is_empty());
    named.unwrap_or_else(|| "redis-server".into()).into()
}

/// Settings of a [`RedisServer`].
#[derive(Debug, Clone)]
pub struct RedisServerBuilder {
    program: PathBuf,
    lines: Vec<String>,
    arguments: Vec<String>,
    password: Option<String>,
    speaks_tls: bool,
}

impl RedisServerBuilder {
    pub(super) fn new() -> RedisServerBuilder {
        RedisServerBuilder {
            program: usual_program(),
            lines: Vec::new(),
            arguments: Vec::new(),
            password: None,
            speaks_tls: false,
        }
    }

    /// Runs this program instead of the program from the environment.
    ///
    /// A script must end in `exec`: otherwise the process id belongs to the script.
    #[must_use]
    pub fn program(mut self, path: impl Into<PathBuf>) -> RedisServerBuilder {
        self.program = path.into();
        self
    }

    /// Adds a line to the end of the configuration file, where the line overrides the harness's lines.
    #[must_use]
    pub fn config(mut self, line: impl Into<String>) -> RedisServerBuilder {
        self.lines.push(line.into());
        self
    }

    /// Adds an argument of the program behind the configuration file, for instance `--sentinel`.
    #[must_use]
    pub fn argument(mut self, argument: impl Into<String>) -> RedisServerBuilder {
        self.arguments.push(argument.into());
        self
    }

    /// Sets a password for all clients, and adds the password to the addresses.
    #[must_use]
    pub fn password(mut self, password: &str) -> RedisServerBuilder {
        self.password = Some(password.to_owned());
        self.config(format!("requirepass {password}"))
    }

    /// Opens a port for TLS, too, with this certificate. Clients need no certificate.
    #[cfg(feature = "certificates")]
    #[must_use]
    pub fn tls(mut self, certificate: &Certificate) -> RedisServerBuilder {
        self.speaks_tls = true;
        self.config(format!("tls-cert-file {}", certificate.file.display()))
            .config(format!("tls-key-file {}", certificate.key.display()))
            .config(format!("tls-ca-cert-file {}", certificate.ca().display()))
            .config("tls-auth-clients no")
    }

    /// As [`tls`](Self::tls), for clients with a certificate of the same authority.
    #[cfg(feature = "certificates")]
    #[must_use]
    pub fn mutual_tls(self, certificate: &Certificate) -> RedisServerBuilder {
        self.tls(certificate).config("tls-auth-clients yes")
    }

    /// Starts the server.
    ///
    /// # Panics
    ///
    /// Panics with the server's log when the server does not answer a PING within 10 seconds.
    #[track_caller]
    pub fn start(self) -> RedisServer {
        let folder = tempfile::Builder::new()
            .prefix("lockson-")
            .tempdir()
            .expect("the folder for temporary files can be written");
        let mut plan = Plan {
            program: self.program,
            folder: folder.path().to_owned(),
            lines: self.lines,
            arguments: self.arguments,
            port: Port::free(),
            tls_port: self.speaks_tls.then(Port::free),
        };
        plan.wipe_data();
        let instance = Instance::start_on_free_port(&mut plan);
        RedisServer { plan, password: self.password, instance: Mutex::new(Some(instance)), folder: Some(folder) }
    }
}
