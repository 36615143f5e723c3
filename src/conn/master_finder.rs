//! Guides to the master: the sentinels of a service, the nodes of a replicated set.

mod nodes;
mod sentinels;
mod succession;

use std::sync::Arc;
use std::time::Duration;

use redis::{Cmd, Value};

use super::address::{Address, Endpoint};
use super::dialer::{Dialer, LONGEST_QUESTION, LONGEST_SILENCE, Locator, MasterFinder};
use super::introduction::Purpose;
use super::server::Server;
use super::target::Service;
use super::trouble::no_thread;
use crate::error::{Error, ErrorKind, Stop};
use crate::system::thread;
use crate::time::Instant;
use crate::transport::{Fault, Limits, ServerNumber};
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
        let limit = Limit::of(self.command_timeout);
        let longest_silence = Some(LONGEST_SILENCE);
        let of_sentinel = move |number, address| Dialer { longest_silence, ..of_sentinel(number, address) };
        self.told_by(Sentinels::new(service, limit, Arc::new(of_sentinel)), login)
    }

    /// The master among nodes with this login.
    pub(crate) fn of_nodes(self, login: Address, nodes: Vec<Endpoint>) -> Dialer {
        let nodes = nodes.into_iter().map(|endpoint| {
            let dialer = (self.dialer)(ServerNumber::default(), login.moved_to(endpoint));
            let (purpose, longest_silence) = (Purpose::AnyRole, Some(LONGEST_SILENCE));
            Arc::new(Server::new(Dialer { purpose, longest_silence, ..dialer }, 1))
        });
        let finder = Nodes::new(nodes.collect(), Limit::of(self.command_timeout));
        self.told_by(finder, login)
    }

    fn told_by(self, finder: impl MasterFinder + 'static, login: Address) -> Dialer {
        let Self { label, endpoint, dialer, .. } = self;
        let (whole, shown) = (dialer(ServerNumber::default(), login.clone()), label.as_str().into());
        let locator = Locator::new(finder, move |endpoint| {
            let dialer = dialer(ServerNumber::default(), login.moved_to(endpoint.clone()));
            let label = format!("{endpoint} ({label})").into();
            Dialer { label, longest_silence: Some(LONGEST_SILENCE), ..dialer }
        });
        Dialer { locator: Some(locator), endpoint, label: shown, ..whole }
    }
}

/// The time limits of one question of a look-up: first for the connections, then for the answers. A caller with less
/// time stops waiting by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    /// Until a master was found.
    first: Duration,
    usual: Duration,
    /// Of a dial, which serves later look-ups, too: behind a slow link it takes several times as long as a question.
    dial: Duration,
}

impl Limit {
    fn of(command_timeout: Duration) -> Self {
        let usual = (command_timeout / 6).clamp(SHORTEST, LONGEST_QUESTION);
        let first = (command_timeout / 3).clamp(SHORTEST, LONGEST_FIRST);
        Self { first, usual, dial: command_timeout.max(first) }
    }

    /// Opens a connection to each of these servers that has none, side by side, and waits for them for so long.
    fn connect(self, servers: &[Arc<Server>], skips_down: bool, wait: Duration) -> Vec<Result<(), Error>> {
        let begun = Instant::now();
        let connect = |server: &Arc<Server>| {
            server.connect(begun.after(wait), self.dial).inspect_err(|error| {
                if skips_down && error.kind() == ErrorKind::Connection {
                    server.did_not_answer(begun);
                }
            })
        };
        side_by_side(servers.iter().map(|server| match server.why_down(begun) {
            Some(error) if skips_down => Err(Err(error)),
            _ if server.is_connected() => Err(Ok(())),
            _ => Ok(move || connect(server)),
        }))
    }

    /// Asks these servers at one moment, each in one round trip over the connection that it has. Where there is none, one
    /// is opened before. Returns that moment, and the answers by server.
    fn ask<T: Send>(
        self,
        is_found: bool,
        servers: &[Arc<Server>],
        skips_down: bool,
        questions: &[Cmd],
        read: impl Fn(&[Value]) -> Result<T, Stop> + Sync,
    ) -> (Instant, Vec<Result<T, Error>>) {
        let wait = if is_found { self.usual } else { self.first };
        let connected = self.connect(servers, skips_down, wait);
        // The whole time again: an answer that is cut short would cost a slow link its connection, look-up by look-up.
        let asked = Instant::now();
        let limits = Limits::by(asked.after(wait));
        let ask = |server: &Arc<Server>| {
            let answer = server.questions(limits, |send| read(&send(questions)?));
            match &answer {
                Ok(_) | Err(Fault::Refused(_)) => server.answered(None, asked),
                Err(_) if skips_down => server.did_not_answer(asked),
                Err(_) => {}
            }
            answer.map_err(Fault::into_error)
        };
        let ask = &ask;
        let asking = servers.iter().zip(connected);
        let asking = asking.map(|(server, connected)| connected.map(|()| move || ask(server)).map_err(Err));
        (asked, side_by_side(asking))
    }
}

/// The error that explains most: one that people must mend, if any.
fn cause(errors: &[Error]) -> Option<&Error> {
    errors.iter().find(|error| error.kind() != ErrorKind::Connection).or(errors.first())
}

/// Does each work in a thread of its own, and returns the results in order. An `Err` is a result that needs no thread.
fn side_by_side<T: Send, W>(works: impl Iterator<Item = Result<W, Result<T, Error>>>) -> Vec<Result<T, Error>>
where
    W: FnOnce() -> Result<T, Error> + Send,
{
    let panicked = |_| Err(Error::new(ErrorKind::Connection, "the thread that asked redis panicked"));
    thread::scope(|scope| {
        let start = |work| thread::Builder::new().name("lockson-dial".into()).spawn_scoped(scope, work);
        let begun: Vec<_> = works.map(|work| work.map(start)).collect();
        let end = begun.into_iter().map(|begun| match begun {
            Ok(Ok(thread)) => thread.join().unwrap_or_else(panicked),
            Ok(Err(error)) => Err(no_thread("ask redis", error)),
            Err(known) => known,
        });
        end.collect()
    })
}

const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST_FIRST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_time_whatever_the_time_of_a_command() {
        let limits = |millis| {
            let Limit { first, usual, dial } = Limit::of(Duration::from_millis(millis));
            (first.as_millis(), usual.as_millis(), dial.as_millis())
        };
        assert_eq!(limits(100), (250, 250, 250));
        assert_eq!(limits(1_200), (400, 250, 1_200));
        assert_eq!(limits(3_000), (1_000, 500, 3_000));
        assert_eq!(limits(60_000), (1_000, 500, 60_000));
    }
}
