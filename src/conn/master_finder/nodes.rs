//! Asks the nodes of a replicated set which of them is the master.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use super::{Limit, cause};
use crate::conn::address::Endpoint;
use crate::conn::dialer::{MasterAddress, MasterFinder};
use crate::conn::introduction::Hello;
use crate::conn::server::Server;
use crate::error::{Error, ErrorKind, Stop};
use crate::sync::Mutex;
use crate::time::Instant;

/// The nodes of a replicated set.
pub(super) struct Nodes {
    nodes: Vec<Arc<Server>>,
    limit: Limit,
    reign: Mutex<Reign>,
}

/// The master of the last look-up that found one.
///
/// A node that was the master a moment ago stays the master: an old master that comes back calls itself master until
/// it is told otherwise.
#[derive(Default)]
struct Reign {
    master: Option<Endpoint>,
    /// Whether the master said so in the last look-up.
    is_sure: bool,
    /// The time since which the master has not answered.
    silent_since: Option<Instant>,
}

impl Nodes {
    pub(super) fn new(nodes: Vec<Arc<Server>>, limit: Limit) -> Self {
        Self { nodes, limit, reign: Mutex::default() }
    }
}

impl MasterFinder for Nodes {
    fn look_up(&self) -> Result<MasterAddress, Error> {
        // A node that was silent may be the next master.
        let (is_known, skips_down) = {
            let reign = self.reign.lock();
            (reign.master.is_some(), reign.is_sure)
        };
        // A distant master that is not heard in time would leave the place to an old one.
        let wait = if is_known { self.limit.question } else { self.limit.first() };
        let role = [redis::cmd("HELLO")];
        let (asked, answers) = self.limit.ask(wait, &self.nodes, skips_down, &role, is_master);
        let (mut masters, mut replicas, mut errors) = (vec![], vec![], vec![]);
        for (node, answer) in self.nodes.iter().zip(answers) {
            let endpoint = &node.dialer.address.endpoint;
            match answer {
                Ok(true) => masters.push(endpoint.clone()),
                Ok(false) => replicas.push(endpoint.clone()),
                Err(error) => errors.push(error),
            }
        }
        let endpoint = self.reign.lock().choose(&masters, &replicas, asked);
        let endpoint = endpoint.ok_or_else(|| no_master(&masters, &replicas, self.nodes.len(), &errors))?;
        Ok(MasterAddress { is_calm: errors.is_empty() && masters == [endpoint.clone()], endpoint, asked })
    }

    fn close(&self) {
        self.nodes.iter().for_each(|node| node.close());
    }
}

impl Reign {
    /// Chooses the master by the answers to a look-up at `now`.
    fn choose(&mut self, masters: &[Endpoint], replicas: &[Endpoint], now: Instant) -> Option<Endpoint> {
        self.is_sure = self.master.as_ref().is_some_and(|last| masters.contains(last));
        let is_replica = self.master.as_ref().is_some_and(|last| replicas.contains(last));
        if self.is_sure || is_replica {
            self.silent_since = None;
        }
        if self.is_sure {
            return self.master.clone();
        }
        let silent_since = *self.silent_since.get_or_insert(now);
        let [next] = masters else { return None };
        if self.master.is_none() || is_replica || now >= silent_since.after(SILENCE) {
            *self = Self { master: Some(next.clone()), is_sure: true, silent_since: None };
        }
        self.master.clone()
    }
}

fn no_master(masters: &[Endpoint], replicas: &[Endpoint], nodes: usize, errors: &[Error]) -> Error {
    let list = |nodes: &[Endpoint]| nodes.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
    let cause = cause(errors);
    if let Some(error) = cause
        && errors.iter().filter(|error| error.kind() != ErrorKind::Connection).count() == nodes
    {
        // Wrong credentials: waiting does not help.
        return error.clone();
    }
    let why = match (masters, cause) {
        ([], Some(error)) => format!("none of {nodes} nodes is a master; {error}"),
        ([], None) => {
            let replicas = list(replicas);
            format!(
                "none of {nodes} nodes is a master; name the master, too, which INFO replication tells at {replicas}"
            )
        }
        (masters, _) => format!("several nodes call themselves master: {}", list(masters)),
    };
    Error::new(ErrorKind::Connection, format!("the master of the replicated set is not known: {why}"))
}

fn is_master(replies: &[Value]) -> Result<bool, Stop> {
    Stop::at_a_refusal(replies)?;
    replies.first().and_then(|reply| Hello::read(reply).is_master()).ok_or(Stop::NoReply)
}

/// A master that is silent for so long, in several look-ups, is gone.
const SILENCE: Duration = Duration::from_secs(3);

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> Endpoint {
        Endpoint::Tcp(host.into(), 1)
    }

    fn moment(millis: u64) -> Instant {
        Instant::from_millis(1_000_000 + millis)
    }

    #[test]
    fn a_master_that_comes_back_does_not_take_over() {
        let check = |last: Option<&str>, masters: &[&str], chosen: Option<&str>| {
            let mut reign = Reign { master: last.map(at), ..Reign::default() };
            let masters: Vec<_> = masters.iter().map(|host| at(host)).collect();
            assert_eq!(reign.choose(&masters, &[], moment(0)), chosen.map(at));
        };
        check(None, &["a"], Some("a"));
        check(Some("b"), &["a", "b"], Some("b"));
        check(None, &["a", "b"], None);
        check(Some("c"), &["a", "b"], None);
        check(Some("a"), &[], None);
    }

    #[test]
    fn a_master_that_misses_a_look_up_keeps_its_place() {
        let (a, b) = ([at("a")], [at("b")]);
        let mut reign = Reign { master: Some(at("b")), ..Reign::default() };
        assert_eq!(reign.choose(&a, &[], moment(100)), Some(at("b")), "another one is there alone");
        assert!(!reign.is_sure);
        assert_eq!(reign.choose(&b, &[], moment(1_000)), Some(at("b")));
        assert_eq!(reign.choose(&a, &[], moment(2_000)), Some(at("b")));
        assert_eq!(reign.choose(&a, &[], moment(4_999)), Some(at("b")));
        assert_eq!(reign.choose(&a, &[], moment(5_000)), Some(at("a")), "the master is gone for good");
        assert_eq!(reign.choose(&b, &[], moment(5_100)), Some(at("a")), "now the other one is the old master");
        assert_eq!(reign.choose(&b, &a, moment(5_200)), Some(at("b")), "a replica says so itself");
        assert_eq!(reign.choose(&[], &[], moment(6_000)), None);
        assert_eq!(reign.choose(&a, &[], moment(8_999)), Some(at("b")));
        assert_eq!(reign.choose(&a, &[], moment(9_000)), Some(at("a")), "silence counts also while nobody takes over");
    }

    #[test]
    fn silent_nodes_are_asked_again_while_no_master_is_sure() {
        let server = Arc::new(Server::for_test("redis://127.0.0.1:1"));
        let nodes = Nodes::new(vec![Arc::clone(&server)], Limit::of(Duration::from_millis(100)));
        let is_skipped = || {
            server.did_not_answer(Instant::now());
            nodes.look_up().unwrap_err().to_string().contains("was not asked")
        };
        nodes.reign.lock().is_sure = true;
        assert!(is_skipped());
        assert!(!is_skipped(), "it may be the next master");
    }

    #[test]
    fn a_set_without_one_master_says_why() {
        let text = |masters: &[Endpoint]| no_master(masters, &[at("c"), at("d")], 3, &[]).to_string();
        assert!(text(&[]).ends_with("name the master, too, which INFO replication tells at c:1, d:1"), "{}", text(&[]));
        let two = text(&[at("a"), at("b")]);
        assert!(two.ends_with("several nodes call themselves master: a:1, b:1"), "{two}");
    }
}
