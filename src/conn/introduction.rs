//! The first commands of a new connection, in one round trip: login, server check, database, name.

use std::sync::Arc;

use redis::{Cmd, Value};

use super::address::Address;
use crate::error::{Error, ErrorKind, Refusal};
use crate::reply::{command, field, int, text};
use crate::transport::Fault;

/// The purpose of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    Locks,
    /// To end an earlier request, or to ask for the role: a replica is accepted, too.
    AnyRole,
    /// To ask for the map of a cluster, which a replica knows as well.
    Map,
    /// To ask a Sentinel for the master.
    Sentinel,
}

/// One command of the introduction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IntroductionStep {
    /// Sends the credentials.
    Login,
    /// Returns the kind of server and the id of this connection.
    Hello,
    Database,
    /// Sets the name that operators see.
    Name,
    /// Returns the address of this client, for fencing.
    Info,
    /// Returns when the server started; not a part of every introduction.
    ServerStart,
    /// Returns the id of the node in its cluster; not a part of every introduction.
    Node,
}

/// The commands of the introduction in their order. A login comes before them: a server with a password refuses
/// `HELLO` without a login.
pub(super) fn introduction(address: &Address, client_name: &str) -> Vec<(IntroductionStep, Cmd)> {
    let mut commands = vec![
        (IntroductionStep::Hello, command("HELLO", if address.resp3 { "3" } else { "2" })),
        (IntroductionStep::Name, command("CLIENT", ("SETNAME", client_name))),
        (IntroductionStep::Info, command("CLIENT", "INFO")),
    ];
    if address.database != 0 {
        commands.insert(1, (IntroductionStep::Database, command("SELECT", address.database)));
    }
    commands
}

impl IntroductionStep {
    /// Returns the refusal of a step as the caller gets it; `None` where the step is optional and the server, or a
    /// proxy in front of the server, lacks the command, or the user has no right to run it.
    pub(super) fn refusal(self, address: &Address, refusal: Refusal) -> Option<Refusal> {
        let lacks_password = address.login().is_some_and(|(_, password)| password.is_empty());
        match self {
            Self::Login if lacks_password && refusal.word() == "WRONGPASS" => {
                let advice = "the URL names a user and no password; a password alone is written redis://:password@host";
                Some(refusal.of_login().advising(advice))
            }
            // This came before the login was read, for instance by a server without room for the connection.
            Self::Login if refusal.is_transient() || refusal.word() == "DENIED" => Some(refusal),
            // Some servers quote the part of a command that is invalid, here the password.
            Self::Login => Some(refusal.of_login()),
            Self::Database => Some(refusal),
            Self::Hello if address.resp3 => Some(refusal),
            // Servers that only speak like a cluster lack the command in words of their own.
            Self::Node => None,
            Self::Hello | Self::Name | Self::Info | Self::ServerStart => (!refusal.lacks_command()).then_some(refusal),
        }
    }
}

/// The properties of a server that `HELLO` reports to any user.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Hello {
    /// The id of this connection on the server.
    pub(super) id: Option<u64>,
    /// `standalone`, `cluster` or `sentinel`.
    mode: String,
    /// `master` or `replica`; a Sentinel reports no role.
    role: String,
}

impl Hello {
    /// Reads the known fields; a proxy may report fewer.
    pub(super) fn read(reply: &Value) -> Self {
        let told = |name| field(reply, name).and_then(text).unwrap_or_default();
        let id = field(reply, "id").and_then(int).and_then(|id| u64::try_from(id).ok());
        Self { id, mode: told("mode"), role: told("role") }
    }

    /// Whether the server is a master; `None` where the server reports no role.
    pub(super) fn is_master(&self) -> Option<bool> {
        (!self.role.is_empty()).then(|| self.role == "master")
    }

    /// Refuses servers that are part of something else than the URL says, or that are no use for this purpose.
    pub(super) fn check(&self, server: &Arc<str>, purpose: Purpose, in_cluster: bool) -> Result<(), Fault> {
        let what = match (self.mode.as_str(), purpose) {
            // An old Sentinel does not know `HELLO`.
            (_, Purpose::AnyRole) | ("" | "sentinel", Purpose::Sentinel) => return Ok(()),
            (_, Purpose::Sentinel) => "no Sentinel: redis+sentinel:// names the Sentinels, not the servers",
            ("cluster", _) if !in_cluster => "a node of a Redis Cluster: connect with redis+cluster://",
            ("standalone", _) if in_cluster => {
                "a server of its own and no node of a Redis Cluster: connect with redis://"
            }
            ("sentinel", _) => {
                "a Sentinel, which keeps no locks: write redis+sentinel://host1,host2,host3/service to find the master"
            }
            // Treated like a refused write: a moment later, the host name may lead to the master.
            (_, Purpose::Locks) if matches!(self.role.as_str(), "replica" | "slave") => {
                return Err(Fault::Refused(Refusal::replica().at(Arc::clone(server))));
            }
            _ => return Ok(()),
        };
        Err(Fault::NotSent(Error::new(ErrorKind::Unsupported, format!("redis at {server} is {what}"))))
    }
}

/// Reads a field of the text of `INFO` or `CLUSTER INFO`.
pub(super) fn field_of<'a>(info: &'a str, name: &str) -> Option<&'a str> {
    info.lines().find_map(|line| line.trim_end().strip_prefix(name)?.strip_prefix(':'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(text: &str) -> Hello {
        Hello::read(&redis::parse_redis_value(text.as_bytes()).unwrap())
    }

    #[test]
    fn the_server_identity_is_read_in_both_protocols() {
        let flat = "*6\r\n$2\r\nid\r\n:7\r\n$4\r\nmode\r\n$7\r\ncluster\r\n$4\r\nrole\r\n$6\r\nmaster\r\n";
        let map = flat.replacen("*6", "%3", 1);
        let wanted = Hello { id: Some(7), mode: "cluster".into(), role: "master".into() };
        assert_eq!((told(flat), told(&map)), (Hello { id: Some(7), ..told(flat) }, wanted));
        assert_eq!(told(flat), told(&map));
        assert_eq!(told("+OK\r\n"), Hello::default());
        assert_eq!(told("*3\r\n$2\r\nid\r\n$1\r\n7\r\n:1\r\n"), Hello::default());
    }

    #[test]
    fn servers_that_keep_no_locks_are_refused_by_name() {
        let check = |mode: &str, role: &str| {
            let told = Hello { id: None, mode: mode.into(), role: role.into() };
            told.check(&"h:1/0".into(), Purpose::Locks, false).map_err(|fault| fault.into_error().to_string())
        };
        assert_eq!(check("standalone", "master"), Ok(()));
        assert_eq!(check("", ""), Ok(()));
        assert!(check("cluster", "master").unwrap_err().starts_with("redis at h:1/0 is a node of a Redis Cluster"));
        assert!(check("sentinel", "").unwrap_err().starts_with("redis at h:1/0 is a Sentinel"));
        assert!(check("standalone", "replica").unwrap_err().starts_with("redis at h:1/0 is a replica"));
    }

    #[test]
    fn a_field_is_read_by_its_whole_name() {
        let info = "cluster_state:ok\r\ncluster_slots_ok:5\r\ncluster_current_epoch:12\r\ncluster_my_epoch:3\r\n";
        assert_eq!(
            (field_of(info, "cluster_state"), field_of(info, "cluster_current_epoch")),
            (Some("ok"), Some("12"))
        );
        assert_eq!(field_of(info, "cluster"), None);
    }
}
