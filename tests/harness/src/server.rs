//! A real server with a folder and a port of its own, gone when the test is gone.

mod builder;
mod counters;
mod instance;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;
use std::{fs, thread};

use parking_lot::Mutex;
use tempfile::TempDir;

use crate::pids;

pub use builder::{RedisServerBuilder, missing_server};
use instance::{Instance, Plan};

/// A server program that listens on a free port of 127.0.0.1 and on a unix socket.
///
/// The server is killed on drop, and also when this process ends in any other way, `SIGKILL` included. The log is shown
/// when the start fails; when a panic drops the server, the log's path is printed and the folder kept. With
/// `LOCKSON_KEEP_LOGS` in the environment the folder is always kept.
#[derive(Debug)]
pub struct RedisServer {
    plan: Plan,
    password: Option<String>,
    instance: Mutex<Option<Instance>>,
    folder: Option<TempDir>,
}

impl RedisServer {
    /// Starts the server program in `LOCKSON_REDIS_SERVER`, else `redis-server`.
    ///
    /// # Panics
    ///
    /// Panics with the server's log when the server does not answer a PING within 10 seconds.
    pub fn start() -> RedisServer {
        RedisServer::builder().start()
    }

    /// Prepares a server with other settings.
    pub fn builder() -> RedisServerBuilder {
        RedisServerBuilder::new()
    }

    /// The shared server of this process, started at the first call.
    ///
    /// For tests that need only key names of their own: never stop, flush or reconfigure the shared server.
    pub fn shared() -> &'static RedisServer {
        static SHARED: OnceLock<RedisServer> = OnceLock::new();
        SHARED.get_or_init(RedisServer::start) // never dropped: the leash ends the server with the process
    }

    /// The address of database 0 over TCP.
    pub fn url(&self) -> String {
        self.url_db(0)
    }

    /// The address of a database over TCP.
    pub fn url_db(&self, database: u32) -> String {
        let secret = match &self.password {
            Some(password) => format!(":{password}@"),
            None => String::new(),
        };
        format!("redis://{secret}127.0.0.1:{}/{database}", self.port())
    }

    /// The address of database 0 over TLS.
    ///
    /// # Panics
    ///
    /// Panics for a server without a port for TLS.
    #[track_caller]
    pub fn tls_url(&self) -> String {
        let secret = self.password.as_ref().map(|password| format!(":{password}@")).unwrap_or_default();
        format!("rediss://{secret}127.0.0.1:{}/0", self.tls_address().port())
    }

    /// The TCP address of the port for TLS.
    ///
    /// # Panics
    ///
    /// Panics for a server without a port for TLS.
    #[track_caller]
    pub fn tls_address(&self) -> SocketAddr {
        let port = self.plan.tls_port.as_ref().expect("the server was started with a certificate");
        SocketAddr::from((Ipv4Addr::LOCALHOST, port.number))
    }

    /// The address of database 0 over the unix socket.
    pub fn unix_url(&self) -> String {
        let socket = self.plan.socket().display().to_string();
        match &self.password {
            Some(password) => format!("redis+unix://{socket}?pass={password}"),
            None => format!("redis+unix://{socket}"),
        }
    }

    /// The TCP port, unchanged by restarts.
    pub fn port(&self) -> u16 {
        self.plan.port.number
    }

    /// The TCP address.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from((Ipv4Addr::LOCALHOST, self.port()))
    }

    /// The path of the unix socket.
    pub fn socket(&self) -> PathBuf {
        self.plan.socket()
    }

    /// The server's log so far, over all starts.
    pub fn log(&self) -> String {
        self.plan.read_log()
    }

    /// The folder of the server's dump and append-only file.
    pub fn data_folder(&self) -> PathBuf {
        self.plan.data()
    }

    /// The process id of the server itself.
    ///
    /// # Panics
    ///
    /// Panics when the server has been killed and not been started again.
    #[track_caller]
    pub fn pid(&self) -> u32 {
        match &*self.instance.lock() {
            Some(instance) => instance.pid(),
            None => panic!("the server is not running"),
        }
    }

    /// False after a kill and after an end by itself; a paused server is running.
    pub fn is_running(&self) -> bool {
        let mut instance = self.instance.lock();
        instance.as_mut().is_some_and(Instance::is_running)
    }

    /// Kills the server and starts the server without data on the same port.
    pub fn restart(&self) {
        self.kill();
        self.plan.wipe_data();
        self.start_again();
    }

    /// Sends SIGKILL and waits for the end; the port refuses connections afterwards.
    ///
    /// Does nothing when the server is down already.
    pub fn kill(&self) {
        drop(self.instance.lock().take());
    }

    /// Starts a killed server on the same port with the saved data.
    ///
    /// # Panics
    ///
    /// Panics when the server runs, or with the log when the server does not answer within 10 seconds.
    #[track_caller]
    pub fn start_again(&self) {
        let mut instance = self.instance.lock();
        let runs = instance.as_mut().is_some_and(Instance::is_running);
        assert!(!runs, "the server is running");
        *instance = None;
        *instance = Some(Instance::start_on_same_port(&self.plan));
    }

    /// Sends SIGSTOP and waits until the server is stopped: connections are accepted, but nothing is answered.
    pub fn pause(&self) {
        pids::stop(self.pid());
    }

    /// Sends SIGCONT.
    pub fn resume(&self) {
        pids::resume(self.pid());
    }

    /// Opens a connection for raw questions; every read and write is bounded by 10 seconds.
    ///
    /// # Panics
    ///
    /// Panics when the server does not answer.
    #[track_caller]
    pub fn connection(&self) -> redis::Connection {
        self.connect().unwrap_or_else(|error| panic!("cannot connect to the server on port {}: {error}", self.port()))
    }

    fn connect(&self) -> redis::RedisResult<redis::Connection> {
        let client = redis::Client::open(self.url())?;
        let connection = client.get_connection_with_timeout(BOUND)?;
        connection.set_read_timeout(Some(BOUND))?;
        connection.set_write_timeout(Some(BOUND))?;
        Ok(connection)
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        self.kill();
        let Some(folder) = self.folder.take() else {
            return;
        };
        if thread::panicking() || keep_logs() {
            let kept = folder.keep();
            eprintln!("server log: {}", kept.join(LOG).display());
        }
    }
}

fn keep_logs() -> bool {
    std::env::var_os("LOCKSON_KEEP_LOGS").is_some()
}

fn empty_folder(path: &Path) {
    let _ = fs::remove_dir_all(path); // an error means that the folder is missing
    fs::create_dir_all(path).expect("the folder of the server can be written");
}

/// The bound of every wait for the server itself.
const BOUND: Duration = Duration::from_secs(10);
const LOG: &str = "server.log";
