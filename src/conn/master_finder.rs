//! Guides to the master: the sentinels of a service, the nodes of a replicated set.

mod nodes;
mod sentinels;
mod succession;

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use redis::Value;

use super::address::{Address, Endpoint};
use super::dialer::{Dialer, Moving, Purpose};
use super::gather::{Request, Response, gather};
use super::locate::{LONGEST_QUESTION, LONGEST_SILENCE, Locator, MasterFinder};
use super::server::Server;
use super::target::Service;
use crate::error::{Error, ErrorKind};
use crate::time::Instant;
use crate::transport::{Fault, Fitness, Limits, Question, ServerNumber};
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
        let of_sentinel = move |number, address| of_sentinel(number, address).with_longest_silence(LONGEST_SILENCE);
        let of_sentinel = Arc::new(of_sentinel);
        self.told_by(Sentinels::new(service, limit, of_sentinel), login)
    }

    /// The master among nodes with this login.
    pub(crate) fn of_nodes(self, login: Address, nodes: Vec<Endpoint>) -> Dialer {
        let nodes = nodes.into_iter().map(|endpoint| {
            let asker = (self.dialer)(ServerNumber::default(), login.moved_to(endpoint.clone()));
            let asker = asker.with_purpose(Purpose::AnyRole).with_longest_silence(LONGEST_SILENCE);
            (endpoint, Arc::new(Server::new(asker, 1)))
        });
        let finder = Nodes::new(nodes.collect(), self.limit());
        self.told_by(finder, login)
    }

    fn told_by(self, finder: impl MasterFinder + 'static, login: Address) -> Dialer {
        let Self { label, endpoint, dialer, .. } = self;
        let whole = dialer(ServerNumber::default(), login.clone()).with_label(label.clone());
        whole.moving(Moving::new(Locator::new(finder), endpoint, move |endpoint| {
            let dialer = dialer(ServerNumber::default(), login.moved_to(endpoint.clone()));
            dialer.with_label(format!("{endpoint} ({label})")).with_longest_silence(LONGEST_SILENCE)
        }))
    }

    fn limit(&self) -> Limit {
        Limit::of(self.command_timeout)
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
        thread::scope(|scope| {
            let connecting = servers.iter().map(|server| match server.why_down(begun) {
                Some(error) if skips_down => Err(error),
                _ if server.is_connected() => Ok(None),
                _ => {
                    let thread = thread::Builder::new().name("lockson-dial".into());
                    let text = "no thread could be started to connect to redis";
                    let failed = |error| Error::with_source(ErrorKind::Connection, text, error);
                    thread.spawn_scoped(scope, move || connect(server)).map(Some).map_err(failed)
                }
            });
            let connecting: Vec<_> = connecting.collect();
            let end = |thread: thread::ScopedJoinHandle<'_, _>| thread.join().unwrap_or(Ok(()));
            connecting.into_iter().map(|begun| begun.and_then(|thread| thread.map_or(Ok(()), end))).collect()
        })
    }

    /// Asks these servers side by side, each over the connection that it has. Where there is none, one is opened
    /// before. Returns a time before any question was sent, and the outcomes by server and question.
    fn ask<T: Send>(
        self,
        is_found: bool,
        servers: &[Arc<Server>],
        skips_down: bool,
        questions: &[(Vec<u8>, &dyn Question<Value, T>)],
    ) -> (Instant, Vec<Response<T>>) {
        let wait = if is_found { self.usual } else { self.first };
        let connected = self.connect(servers, skips_down, wait);
        let (asked, fitness) = (Instant::now(), Fitness { is_up: skips_down, ..Fitness::default() });
        let limits = Limits::by(asked.after(wait));
        let requests =
            servers.iter().zip(&connected).filter(|(_, connected)| connected.is_ok()).flat_map(|(server, _)| {
                questions.iter().map(|(packed, call)| Request {
                    server: Arc::clone(server),
                    packed: packed.into(),
                    limits,
                    fitness,
                    call: *call,
                    whole: true,
                    asking: false,
                })
            });
        let mut answers = gather(requests.collect()).into_iter();
        let outcomes = servers.iter().zip(&connected).flat_map(|(server, connected)| {
            questions
                .iter()
                .filter_map(|_| match connected {
                    Ok(()) => answers.next(),
                    Err(error) => {
                        let answer = Err(Fault::NotSent(error.clone()));
                        let server = server.number();
                        Some(Response { server, answer, sent: asked, ended: asked, run_id: None, copies: None })
                    }
                })
                .collect::<Vec<_>>()
        });
        (asked, outcomes.collect())
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
            let Limit { first, usual, dial } = Limit::of(Duration::from_millis(millis));
            (first.as_millis(), usual.as_millis(), dial.as_millis())
        };
        assert_eq!(limits(100), (250, 250, 250));
        assert_eq!(limits(1_200), (400, 250, 1_200));
        assert_eq!(limits(3_000), (1_000, 500, 3_000));
        assert_eq!(limits(60_000), (1_000, 500, 60_000));
    }
}
