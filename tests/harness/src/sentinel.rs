//! A master, its replicas, and the sentinels that watch the master: real processes on loopback.

use std::time::Duration;

use crate::{RedisServer, RedisServerBuilder, eventually, pids};

/// A master with replicas and sentinels, by which a replica becomes the master a second after the master falls silent.
///
/// A server is named by its index: the first master has index 0, then come the replicas. An index never changes. All
/// processes end with the test process, as a [`RedisServer`] does.
#[derive(Debug)]
pub struct SentinelSet {
    servers: Vec<RedisServer>,
    sentinels: Vec<RedisServer>,
    settings: SentinelSetBuilder,
}

/// Settings of a [`SentinelSet`].
#[derive(Debug, Clone)]
pub struct SentinelSetBuilder {
    replicas: usize,
    sentinels: usize,
    password: Option<String>,
    sentinel_password: Option<String>,
}

impl SentinelSet {
    /// Starts a set without passwords, and waits until a fail-over is possible.
    ///
    /// # Panics
    ///
    /// Panics when the sentinels do not know each other and the replicas within 30 seconds.
    #[track_caller]
    pub fn start(replicas: usize, sentinels: usize) -> SentinelSet {
        SentinelSet::builder(replicas, sentinels).start()
    }

    /// Prepares a set with passwords.
    pub fn builder(replicas: usize, sentinels: usize) -> SentinelSetBuilder {
        SentinelSetBuilder { replicas, sentinels, password: None, sentinel_password: None }
    }

    /// The address of the service: all sentinels, separated by commas, and the logins.
    pub fn url(&self) -> String {
        let places: Vec<String> = self.sentinels.iter().map(|sentinel| sentinel.address().to_string()).collect();
        let SentinelSetBuilder { password, sentinel_password, .. } = &self.settings;
        let login = password.as_ref().map_or_else(String::new, |password| format!(":{password}@"));
        let query = sentinel_password.as_ref().map_or_else(String::new, |word| format!("?sentinel_pass={word}"));
        format!("redis+sentinel://{login}{}/{SERVICE}{query}", places.join(","))
    }

    /// The address of the servers as a replicated set, which is looked at without the sentinels.
    pub fn replicated_url(&self) -> String {
        let places: Vec<String> = self.servers.iter().map(|server| server.address().to_string()).collect();
        let login = self.settings.password.as_ref().map_or_else(String::new, |password| format!(":{password}@"));
        format!("redis+replicated://{login}{}", places.join(","))
    }

    /// The servers, by index.
    pub fn servers(&self) -> &[RedisServer] {
        &self.servers
    }

    /// The server with this index.
    pub fn server(&self, index: usize) -> &RedisServer {
        &self.servers[index]
    }

    /// The sentinels.
    pub fn sentinels(&self) -> &[RedisServer] {
        &self.sentinels
    }

    /// The index of the master that most sentinels name; `None` while they disagree.
    ///
    /// # Panics
    ///
    /// Panics when a sentinel that runs does not answer.
    #[track_caller]
    pub fn master(&self) -> Option<usize> {
        let votes: Vec<u16> = self.running_sentinels().map(named_by).collect();
        let has_most = |port: &u16| votes.iter().filter(|vote| *vote == port).count() * 2 > self.sentinels.len();
        self.servers.iter().position(|server| has_most(&server.port()))
    }

    /// Waits until most sentinels name another master than this one, and returns its index.
    ///
    /// # Panics
    ///
    /// Panics when that takes more than 30 seconds.
    #[track_caller]
    pub fn wait_for_another_master(&self, than: usize) -> usize {
        let mut master = None;
        eventually(LIMIT, "another master", || {
            master = self.master().filter(|&master| master != than);
            master.is_some()
        });
        master.expect("the wait ended with a master")
    }

    /// Starts a killed server again, without data, as a replica of the master.
    ///
    /// # Panics
    ///
    /// Panics when the server runs, or when there is no master.
    #[track_caller]
    pub fn rejoin(&self, index: usize) {
        self.servers[index].start_again();
        self.follow_master(index);
    }

    /// Makes a server that runs a replica of the master, as the sentinels do themselves after some ten seconds.
    ///
    /// # Panics
    ///
    /// Panics when there is no master.
    #[track_caller]
    pub fn follow_master(&self, index: usize) {
        let master = self.servers[self.master().expect("there is a master")].port();
        follow(&self.servers[index], master);
    }

    /// Waits until each server that runs has what the master has.
    ///
    /// # Panics
    ///
    /// Panics when that takes more than 30 seconds, or when a server is stopped.
    #[track_caller]
    pub fn wait_for_sync(&self) {
        eventually(LIMIT, "all replicas in step", || {
            let Some(master) = self.master() else { return false };
            let written = self.offset_of(master);
            let others = (0..self.servers.len()).filter(|&index| index != master && self.servers[index].is_running());
            others
                .into_iter()
                .all(|index| self.field_of(index, "master_link_status:") == "up" && self.offset_of(index) >= written)
        });
    }

    /// Waits until every sentinel knows every other one and every server, and finds all of them well.
    ///
    /// # Panics
    ///
    /// Panics when that takes more than 30 seconds, or when a server or a sentinel is stopped.
    #[track_caller]
    pub fn wait_until_ready(&self) {
        self.wait_for_sync();
        let (others, replicas) = (self.sentinels.len() - 1, self.servers.len() - 1);
        let is_ready = |sentinel: &RedisServer| {
            let master: Vec<String> = sentinel.query(&["SENTINEL", "MASTER", SERVICE]);
            let field = |name: &str| value_of(&master, name);
            if field("flags") != "master" || field("num-other-sentinels") != others.to_string() {
                return false;
            }
            let slaves: Vec<Vec<String>> = sentinel.query(&["SENTINEL", "REPLICAS", SERVICE]);
            let well = slaves
                .iter()
                .filter(|slave| value_of(slave, "flags") == "slave" && value_of(slave, "master-link-status") == "ok");
            well.count() == replicas && slaves.len() == replicas
        };
        eventually(LIMIT, "sentinels that can replace the master", || self.sentinels.iter().all(is_ready));
    }

    /// The number of bytes that the server has written, or copied from its master.
    #[track_caller]
    pub fn offset_of(&self, index: usize) -> u64 {
        let name = if self.field_of(index, "role:") == "master" { "master_repl_offset:" } else { "slave_repl_offset:" };
        self.field_of(index, name).parse().expect("an offset is a number")
    }

    #[track_caller]
    fn field_of(&self, index: usize, name: &str) -> String {
        let mut info = String::new();
        // A sentinel that makes a server a replica also ends the server's connections.
        eventually(LIMIT, "the server answers", || {
            self.servers[index].try_query(&["INFO", "replication"]).map(|text| info = text).is_ok()
        });
        info.lines().find_map(|line| line.strip_prefix(name)).unwrap_or_default().to_owned()
    }

    fn running_sentinels(&self) -> impl Iterator<Item = &RedisServer> {
        self.sentinels.iter().filter(|sentinel| sentinel.is_running() && !pids::is_stopped(sentinel.pid()))
    }
}

impl SentinelSetBuilder {
    /// Sets a password for the servers.
    #[must_use]
    pub fn password(mut self, password: &str) -> SentinelSetBuilder {
        self.password = Some(password.to_owned());
        self
    }

    /// Sets a password for the sentinels.
    #[must_use]
    pub fn sentinel_password(mut self, password: &str) -> SentinelSetBuilder {
        self.sentinel_password = Some(password.to_owned());
        self
    }

    /// Starts the processes, and waits until a fail-over is possible.
    ///
    /// # Panics
    ///
    /// Panics when the sentinels do not know each other and the replicas within 30 seconds.
    #[track_caller]
    pub fn start(self) -> SentinelSet {
        let server = || match &self.password {
            Some(password) => RedisServer::builder().password(password).config(format!("masterauth {password}")),
            None => RedisServer::builder(),
        };
        let server = |_| server().config("repl-diskless-sync-delay 0").start();
        let servers: Vec<RedisServer> = (0..=self.replicas).map(server).collect();
        let master = servers[0].port();
        // Not by the configuration, which would name the first master after each start.
        servers[1..].iter().for_each(|replica| follow(replica, master));
        let sentinels = (0..self.sentinels).map(|_| self.sentinel(master).start()).collect();
        let set = SentinelSet { servers, sentinels, settings: self };
        set.wait_until_ready();
        set
    }

    fn sentinel(&self, master: u16) -> RedisServerBuilder {
        let mut builder = RedisServer::builder().argument("--sentinel");
        if let Some(password) = &self.sentinel_password {
            builder = builder.password(password).config(format!("sentinel sentinel-pass {password}"));
        }
        builder = builder
            .config(format!("sentinel monitor {SERVICE} 127.0.0.1 {master} {}", self.sentinels / 2 + 1))
            .config(format!("sentinel down-after-milliseconds {SERVICE} 1000"))
            .config(format!("sentinel failover-timeout {SERVICE} 3000"));
        match &self.password {
            Some(password) => builder.config(format!("sentinel auth-pass {SERVICE} {password}")),
            None => builder,
        }
    }
}

#[track_caller]
fn follow(replica: &RedisServer, master: u16) {
    replica.run(&["REPLICAOF", "127.0.0.1", &master.to_string()]);
}

/// The port of the master that a sentinel names.
#[track_caller]
fn named_by(sentinel: &RedisServer) -> u16 {
    let place: Vec<String> = sentinel.query(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]);
    place.get(1).and_then(|port| port.parse().ok()).expect("the sentinel knows the service")
}

fn value_of<'a>(fields: &'a [String], name: &str) -> &'a str {
    fields.chunks_exact(2).find(|pair| pair[0] == name).map_or("", |pair| &pair[1])
}

const SERVICE: &str = "mymaster";
const LIMIT: Duration = Duration::from_secs(30);
