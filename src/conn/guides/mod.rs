//! Guides to the master: the sentinels of a service, the nodes of a replicated set.

mod nodes;
mod sentinels;
mod succession;

use std::sync::Arc;
use std::time::Duration;

use super::address::{Address, Endpoint};
use super::dialer::{Dialer, Moving, Purpose};
use super::locate::{Guide, LONGEST_QUESTION, LONGEST_SILENCE, Locator};
use super::server::Server;
use super::target::Service;
use crate::transport::ServerNumber;
use nodes::Nodes;
use sentinels::Sentinels;

/// Makes the dialer of a server, by its number and its address.
pub(crate) type MakesDialers = dyn Fn(ServerNumber, Address) -> Dialer + Send + Sync;

/// Makes connections to a master whose place others tell. `label` and `endpoint` stand for it wherever it is.
pub(crate) struct Master {
    pub(crate) label: String,
    pub(crate) endpoint: String,
    pub(crate) command_timeout: Duration,
    pub(crate) dialer: Arc<MakesDialers>,
}

impl Master {
    /// The master of a service. `of_sentinel` makes the dialer of a sentinel, whose login is another.
    pub(crate) fn of_service(self, service: Service, of_sentinel: Arc<MakesDialers>) -> Dialer {
        let login = service.master.clone();
        let limit = self.limit();
        self.told_by(Sentinels::new(service, limit, of_sentinel), login)
    }

    /// The master among nodes with this login.
    pub(crate) fn of_nodes(self, login: Address, nodes: Vec<Endpoint>) -> Dialer {
        let nodes = nodes.into_iter().map(|endpoint| {
            let asker = (self.dialer)(ServerNumber::default(), login.moved_to(endpoint.clone()));
            (endpoint, Arc::new(Server::new(asker.with_purpose(Purpose::AnyRole), 1)))
        });
        let guide = Nodes::new(nodes.collect(), self.limit());
        self.told_by(guide, login)
    }

    fn told_by(self, guide: impl Guide + 'static, login: Address) -> Dialer {
        let Self { label, endpoint, dialer, .. } = self;
        let whole = dialer(ServerNumber::default(), login.clone()).with_label(label.clone());
        whole.moving(Moving::new(Locator::new(guide), endpoint, move |endpoint| {
            let dialer = dialer(ServerNumber::default(), login.moved_to(endpoint.clone()));
            dialer.with_label(format!("{endpoint} ({label})")).with_longest_silence(LONGEST_SILENCE)
        }))
    }

    fn limit(&self) -> Limit {
        Limit::of(self.command_timeout)
    }
}

/// The time limit of one question of a look-up. A caller with less time stops waiting by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    /// Until a master was found: all connections are to be opened.
    first: Duration,
    usual: Duration,
}

impl Limit {
    fn of(command_timeout: Duration) -> Self {
        let usual = (command_timeout / 6).clamp(SHORTEST, LONGEST_QUESTION);
        Self { first: (command_timeout / 3).clamp(SHORTEST, LONGEST_FIRST), usual }
    }

    fn get(self, is_found: bool) -> Duration {
        if is_found { self.usual } else { self.first }
    }
}

const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST_FIRST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_time_whatever_the_time_of_a_command() {
        let limits = |millis| {
            let Limit { first, usual } = Limit::of(Duration::from_millis(millis));
            (first.as_millis(), usual.as_millis())
        };
        assert_eq!(limits(100), (250, 250));
        assert_eq!(limits(1_200), (400, 250));
        assert_eq!(limits(3_000), (1_000, 500));
        assert_eq!(limits(60_000), (1_000, 500));
    }
}
