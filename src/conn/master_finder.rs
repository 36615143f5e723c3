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
use super::side_by_side;
use super::target::Service;
use crate::error::{Error, ErrorKind, Stop};
use crate::time::Instant;
use crate::transport::{Fault, Limits};
use nodes::Nodes;
use sentinels::Sentinels;

/// Makes the dialer of the server at an address.
pub(crate) type MakesDialers = dyn Fn(Address) -> Dialer + Send + Sync;

/// Makes connections to the master of a service. `label` stands for it wherever it is.
pub(crate) fn master_of_service(label: String, service: Service, limit: Duration, dialer: Arc<MakesDialers>) -> Dialer {
    let (login, dials) = (service.master.clone(), Arc::clone(&dialer));
    // Sentinels have a login of their own.
    let of_sentinel = move |address| Dialer {
        longest_silence: Some(LONGEST_SILENCE),
        #[cfg(feature = "credentials")]
        provider: None,
        ..dials(address)
    };
    told_by(Sentinels::new(service, Limit::of(limit), Arc::new(of_sentinel)), label, login, dialer)
}

/// Makes connections to the master among nodes with this login. `label` stands for it wherever it is.
pub(crate) fn master_among(
    label: String,
    (login, nodes): (Address, Vec<Endpoint>),
    limit: Duration,
    dialer: Arc<MakesDialers>,
) -> Dialer {
    let nodes = nodes.into_iter().map(|endpoint| {
        let dialer = dialer(login.moved_to(endpoint));
        let (purpose, longest_silence) = (Purpose::AnyRole, Some(LONGEST_SILENCE));
        Arc::new(Server::new(Dialer { purpose, longest_silence, ..dialer }, 1))
    });
    told_by(Nodes::new(nodes.collect(), Limit::of(limit)), label, login, dialer)
}

fn told_by(finder: impl MasterFinder + 'static, label: String, login: Address, dialer: Arc<MakesDialers>) -> Dialer {
    let (whole, shown) = (dialer(login.clone()), label.as_str().into());
    let locator = Locator::new(finder, move |endpoint| {
        let dialer = dialer(login.moved_to(endpoint.clone()));
        let label = format!("{endpoint} ({label})").into();
        Dialer { label, longest_silence: Some(LONGEST_SILENCE), ..dialer }
    });
    Dialer { locator: Some(locator), label: shown, ..whole }
}

/// The time limits of a look-up. A caller with less time stops waiting by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Limit {
    /// First for the connections, then for the answers.
    question: Duration,
    /// Of a dial, which serves later look-ups, too: behind a slow link it takes several times as long as a question.
    dial: Duration,
}

impl Limit {
    fn of(command_timeout: Duration) -> Self {
        let question = (command_timeout / 6).clamp(SHORTEST, LONGEST_QUESTION);
        Self { question, dial: command_timeout.max(question) }
    }

    /// The time for the connections, and that for the answers, where nothing is known so far.
    fn first(self) -> Duration {
        (self.dial / 3).clamp(SHORTEST, LONGEST_FIRST)
    }

    /// Asks the servers at one moment, each in a round trip over an open connection. Where there is none, one is opened
    /// before. Waits for so long for the connections, and for the answers. Returns that moment, and the answers by
    /// server.
    fn ask<T: Send>(
        self,
        wait: Duration,
        servers: &[Arc<Server>],
        skips_down: bool,
        questions: &[Cmd],
        read: impl Fn(&[Value]) -> Result<T, Stop> + Sync,
    ) -> (Instant, Vec<Result<T, Error>>) {
        let begun = Instant::now();
        let connected = side_by_side(servers, |server| match server.why_down(begun) {
            Some(error) if skips_down => Err(error),
            _ if server.is_connected() => Ok(()),
            _ => server.connect(begun.after(wait), self.dial).inspect_err(|error| {
                if skips_down && error.kind() == ErrorKind::Connection {
                    server.did_not_answer(begun);
                }
            }),
        });
        // The whole time again: an answer that is cut short would cost a slow link its connection, look-up by look-up.
        let asked = Instant::now();
        let limits = Limits::by(asked.after(wait));
        let connected: Vec<_> = servers.iter().zip(connected).collect();
        let answers = side_by_side(&connected, |(server, connected)| {
            connected.clone()?;
            let answer = server.questions(limits, |send| read(&send(questions)?));
            match &answer {
                Ok(_) | Err(Fault::Refused(_)) => server.answered(None, asked),
                Err(_) if skips_down => server.did_not_answer(asked),
                Err(_) => {}
            }
            answer.map_err(Fault::into_error)
        });
        (asked, answers)
    }
}

/// The error that explains most: one that people must mend, if any.
fn cause(errors: &[Error]) -> Option<&Error> {
    errors.iter().find(|error| error.kind() != ErrorKind::Connection).or(errors.first())
}

const SHORTEST: Duration = Duration::from_millis(250);
const LONGEST_FIRST: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_has_time_whatever_the_time_of_a_command() {
        let limits = |millis| {
            let limit = Limit::of(Duration::from_millis(millis));
            [limit.first(), limit.question, limit.dial].map(|limit| limit.as_millis())
        };
        let wanted = [[250, 250, 250], [400, 250, 1_200], [1_000, 500, 3_000], [1_000, 500, 60_000]];
        assert_eq!([100, 1_200, 3_000, 60_000].map(limits), wanted);
    }
}
