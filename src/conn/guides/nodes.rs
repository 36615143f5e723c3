//! Asks the nodes of a replicated set which of them is the master.

use std::sync::Arc;
use std::time::Duration;

use redis::Value;

use crate::conn::address::Endpoint;
use crate::conn::command::command;
use crate::conn::gather::{Request, gather};
use crate::conn::introduction::Hello;
use crate::conn::locate::{Guide, Sighting};
use crate::conn::server::Server;
use crate::error::{Error, ErrorKind};
use crate::sync::Mutex;
use crate::time::Instant;
use crate::transport::{Limits, PubSub, Question, Voting};

/// The nodes of a replicated set.
#[derive(Debug)]
pub(super) struct Nodes {
    nodes: Vec<(Endpoint, Arc<Server>)>,
    limit: Duration,
    /// The master of the last look-up that found one.
    master: Mutex<Option<Endpoint>>,
}

/// Asks for the role.
#[derive(Debug)]
struct Role;

impl Nodes {
    pub(super) fn new(nodes: Vec<(Endpoint, Arc<Server>)>, limit: Duration) -> Self {
        Self { nodes, limit, master: Mutex::default() }
    }
}

impl Guide for Nodes {
    fn look_up(&self) -> Result<Sighting, Error> {
        let limits = Limits::by(Instant::now().after(self.limit));
        let requests = self.nodes.iter().map(|(_, server)| Request {
            server: Arc::clone(server),
            packed: command(&["HELLO"]).get_packed_command().into(),
            limits,
            voting: Voting { skips_down: true, counts_after: None },
            call: &Role,
            whole: true,
            asking: false,
        });
        let (mut masters, mut errors) = (vec![], vec![]);
        for ((endpoint, _), outcome) in self.nodes.iter().zip(gather(requests.collect())) {
            match outcome.answer {
                Ok(true) => masters.push(endpoint.clone()),
                Ok(false) => {}
                Err(fault) => errors.push(fault.into_error()),
            }
        }
        let mut last = self.master.lock();
        let endpoint = choose(last.as_ref(), &masters)
            .ok_or_else(|| no_master(&masters, self.nodes.len(), errors.iter().collect()))?;
        *last = Some(endpoint.clone());
        Ok(Sighting { endpoint, is_calm: errors.is_empty() && masters.len() == 1 })
    }

    fn close(&self) {
        self.nodes.iter().for_each(|(_, server)| server.close());
    }
}

/// Chooses among the nodes that call themselves master. A node that was the master a moment ago stays the master: an
/// old master that comes back calls itself master until it is told otherwise.
fn choose(last: Option<&Endpoint>, masters: &[Endpoint]) -> Option<Endpoint> {
    match (masters, last) {
        ([master], _) => Some(master.clone()),
        (masters, Some(last)) if masters.contains(last) => Some(last.clone()),
        _ => None,
    }
}

fn no_master(masters: &[Endpoint], nodes: usize, errors: Vec<&Error>) -> Error {
    if masters.is_empty() && errors.len() == nodes {
        // Wrong credentials: waiting does not help.
        if let Some(error) = errors.iter().find(|error| error.kind() != ErrorKind::Connection) {
            return (*error).clone();
        }
    }
    let why = match (masters, errors.first()) {
        ([], Some(error)) => format!("none of {nodes} nodes is a master; {error}"),
        ([], None) => format!("none of {nodes} nodes is a master"),
        (masters, _) => {
            let masters: Vec<_> = masters.iter().map(ToString::to_string).collect();
            format!("several nodes call themselves master: {}", masters.join(", "))
        }
    };
    Error::new(ErrorKind::Connection, format!("the master of the replicated set is not known: {why}"))
}

impl Question<Value, bool> for Role {
    fn read(&self, reply: &Value) -> Option<bool> {
        Hello::read(reply).is_master()
    }

    fn packed_with_source(&self, _: PubSub) -> Option<Vec<u8>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(host: &str) -> Endpoint {
        Endpoint::Tcp(host.into(), 1)
    }

    #[test]
    fn a_master_that_comes_back_does_not_take_over() {
        assert_eq!(choose(None, &[at("a")]), Some(at("a")));
        assert_eq!(choose(Some(&at("a")), &[at("b")]), Some(at("b")));
        assert_eq!(choose(Some(&at("b")), &[at("a"), at("b")]), Some(at("b")));
        assert_eq!(choose(None, &[at("a"), at("b")]), None);
        assert_eq!(choose(Some(&at("c")), &[at("a"), at("b")]), None);
        assert_eq!(choose(Some(&at("a")), &[]), None);
    }

    #[test]
    fn a_set_without_one_master_says_why() {
        let text = |masters: &[Endpoint]| no_master(masters, 3, vec![]).to_string();
        assert!(text(&[]).ends_with("none of 3 nodes is a master"), "{}", text(&[]));
        let two = text(&[at("a"), at("b")]);
        assert!(two.ends_with("several nodes call themselves master: a:1, b:1"), "{two}");
    }
}
