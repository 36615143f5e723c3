//! Those who know where the master is: the sentinels of a service, the nodes of a replicated set.

mod nodes;
mod sentinels;
mod succession;

use std::sync::Arc;
use std::time::Duration;

use super::address::{Address, Endpoint};
use super::connection::{Dialer, Moving, Purpose};
use super::locate::{Guide, Locator};
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
            dialer.with_label(format!("{endpoint} ({label})"))
        }))
    }

    /// The time limit of the questions of one look-up.
    fn limit(&self) -> Duration {
        self.command_timeout / QUESTIONS_IN_A_COMMAND
    }
}

const QUESTIONS_IN_A_COMMAND: u32 = 6;
