//! Error texts for a server that is not reached or does not answer, with the error of the system as the source.

use std::error::Error as StdError;
use std::fmt::{self, Display};
use std::io;
use std::time::Duration;

use super::address::Endpoint;
use super::frame;
use crate::error::{Error, ErrorKind};

/// The reason why no connection could be made.
#[derive(Debug)]
pub(super) enum NoConnection {
    /// The host name does not exist.
    NotResolved(io::Error),
    /// The host name was not resolved in time.
    NotResolvedInTime(Duration),
    Failed(io::Error),
}

/// A failure of TLS. Its text is that of the TLS library.
#[derive(Debug)]
pub(super) struct Trouble {
    /// The deed of the server and the remedy; the server is the subject of the sentence.
    pub(super) what: String,
    /// Whether the next attempt fails, too, until people change something.
    pub(super) is_final: bool,
    pub(super) text: String,
}

impl Trouble {
    /// The failure of TLS in an error of a connection.
    pub(super) fn of(error: &io::Error) -> Option<&Self> {
        error.get_ref().and_then(|cause| cause.downcast_ref())
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl StdError for Trouble {}

/// The stage at which a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Moment {
    /// The TLS handshake is not complete.
    Handshake,
    /// The server sent no reply over this connection, whose port may expect TLS.
    Greeting,
    Request,
}

/// Builds the error for a server that could not be connected to within `limit`.
pub(super) fn not_reached(label: &str, endpoint: &Endpoint, trouble: NoConnection, limit: Duration) -> Error {
    let text = |why: &str| format!("redis at {label} cannot be reached: {why}");
    let error = match trouble {
        NoConnection::NotResolved(error) => {
            return Error::with_source(ErrorKind::Connection, text("its host name is not known"), error);
        }
        NoConnection::NotResolvedInTime(limit) => {
            let why = format!("its host name was not resolved within {}", in_words(limit));
            return Error::new(ErrorKind::Connection, text(&why));
        }
        NoConnection::Failed(error) if is_over(&error, limit) => return no_time(label),
        NoConnection::Failed(error) => error,
    };
    let (is_socket, limit) = (matches!(endpoint, Endpoint::Unix(_)), in_words(limit));
    let why = match error.kind() {
        io::ErrorKind::ConnectionRefused if is_socket => "no server listens on this socket".to_owned(),
        io::ErrorKind::ConnectionRefused => "the machine is up, but nothing listens on this port".to_owned(),
        io::ErrorKind::NotFound if is_socket => "the socket does not exist".to_owned(),
        io::ErrorKind::PermissionDenied => "this process has no right to connect there".to_owned(),
        io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => "there is no route to it".to_owned(),
        io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock => {
            format!("the connection was not accepted within {limit}; the machine is down, or a firewall drops it")
        }
        // For instance "address not available": the kind in words, without the number of the system.
        other => other.to_string(),
    };
    Error::with_source(ErrorKind::Connection, text(&why), error)
}

/// Builds the error for a connection that failed when `limit` was left for the reply.
pub(super) fn failed(label: &str, moment: Moment, error: io::Error, limit: Duration) -> Error {
    if moment != Moment::Request && is_over(&error, limit) {
        return no_time(label);
    }
    let limit = in_words(limit);
    if let Some(trouble) = Trouble::of(&error) {
        let text = format!("redis at {label} {}", trouble.what);
        return Error::with_source(ErrorKind::Connection, text, error);
    }
    let what = match (error.kind(), moment) {
        (io::ErrorKind::TimedOut, Moment::Handshake) => format!(
            "accepted the connection but did not answer the TLS handshake within {limit}: it hangs, or the port is a \
             plain one (redis://)"
        ),
        (kind, Moment::Handshake) if is_end(kind) => {
            "closed the connection during the TLS handshake: the port may be a plain one (redis://)".to_owned()
        }
        (io::ErrorKind::TimedOut, Moment::Greeting) => {
            format!("accepted the connection but did not answer within {limit}: it hangs or is overloaded")
        }
        (io::ErrorKind::TimedOut, Moment::Request) => format!("did not answer within {limit}"),
        (kind, Moment::Greeting) if is_end(kind) => {
            "closed the connection without a reply, as a port that expects TLS (rediss://) does".to_owned()
        }
        (kind, Moment::Request) if is_end(kind) => "closed the connection before it answered".to_owned(),
        (io::ErrorKind::InvalidData | frame::TOO_LARGE, Moment::Greeting) => {
            "does not speak Redis's protocol: it is another service, or a port that expects TLS (rediss://)".to_owned()
        }
        (io::ErrorKind::InvalidData | frame::TOO_LARGE, Moment::Request) => {
            return at(label, format_args!("sent a reply that cannot be read ({error})"));
        }
        (ODD, _) => "sent a reply that does not fit the request".to_owned(),
        (other, _) => format!("did not answer: {other}"),
    };
    Error::with_source(ErrorKind::Connection, format!("redis at {label} {what}"), error)
}

/// The error of a client that cannot be opened. What TLS refuses must be changed by people, as a bad file must.
pub(crate) fn at_the_start(error: Error) -> Error {
    let cause = StdError::source(&error).and_then(|cause| cause.downcast_ref::<io::Error>());
    let is_final = cause.and_then(Trouble::of).is_some_and(|trouble| trouble.is_final);
    if is_final { error.of_the_settings() } else { error }
}

/// The error of a server that did this, or was not asked for this reason.
pub(super) fn at(label: &str, what: impl Display) -> Error {
    Error::new(ErrorKind::Connection, format!("redis at {label} {what}"))
}

/// The error of a question for which the system gave no thread.
pub(super) fn no_thread(what: &str, error: io::Error) -> Error {
    Error::with_source(ErrorKind::Connection, format!("no thread could be started to {what}"), error)
}

/// The error for a request on a closed client.
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed, or opened before this process was forked; open another one")
}

/// The error for a request whose time was over before it could be sent.
pub(super) fn no_time(label: &str) -> Error {
    at(label, "was not asked: no time was left for the request")
}

/// The error for a request that was not sent because the server has not answered for `silence`.
pub(super) fn is_down(label: &str, silence: Duration) -> Error {
    at(label, format_args!("was not asked: it has not answered for {}", in_words(silence)))
}

/// The error where the address of a member of a cluster is that of another node by now.
pub(super) fn foreign(label: &str) -> Error {
    at(label, FOREIGN)
}

/// The error for a request that was not sent because the server started `age` ago. It is sent after `wait`.
pub(super) fn started_lately(label: &str, age: Duration, wait: Duration, advice: &str) -> Error {
    let (age, wait) = (age.as_secs(), wait.as_millis().div_ceil(1_000).max(1));
    let why = format!("it started {age} s ago and may have forgotten locks, so it counts {wait} s from now");
    at(label, format_args!("was not asked: {why}; {advice}"))
}

/// The error for a reply of a shape that the request never has.
pub(super) fn odd_reply() -> io::Error {
    io::Error::new(ODD, "an unexpected reply")
}

const FOREIGN: &str = "is not the node that the cluster had there: the address belongs to another node by now; the \
                       client looks for the new place, so try again";
/// No error of the system has this kind.
const ODD: io::ErrorKind = io::ErrorKind::Other;

/// Whether the time was over before the server could do anything, so that its silence says nothing.
fn is_over(error: &io::Error, limit: Duration) -> bool {
    limit.is_zero() && matches!(error.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock)
}

fn is_end(kind: io::ErrorKind) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, NotConnected, UnexpectedEof, WriteZero};
    matches!(kind, UnexpectedEof | ConnectionReset | ConnectionAborted | BrokenPipe | NotConnected | WriteZero)
}

/// Shows a limit as it was configured, rounded up over the time that the machine took.
pub(super) fn in_words(limit: Duration) -> String {
    let millis = limit.as_micros().div_ceil(1_000);
    let step = if millis < 100 { 1 } else { 10 };
    let millis = u64::try_from(millis.div_ceil(step) * step).unwrap_or(u64::MAX);
    format!("{:?}", Duration::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use std::error::Error as _;

    use super::*;

    #[test]
    fn a_limit_reads_as_it_was_set() {
        let check = |micros, shown: &str| assert_eq!(in_words(Duration::from_micros(micros)), shown);
        check(2_999_870, "3s");
        check(1_499_999, "1.5s");
        check(499_100, "500ms");
        check(9_100, "10ms");
        check(99_400, "100ms");
    }

    #[test]
    fn a_server_is_not_blamed_where_no_time_was_left() {
        let late = || io::Error::from(io::ErrorKind::TimedOut);
        let (endpoint, text) = (Endpoint::Tcp("h".into(), 1), no_time("h:1/0").to_string());
        let reached = |limit| not_reached("h:1/0", &endpoint, NoConnection::Failed(late()), limit).to_string();
        let greeted = |limit| failed("h:1/0", Moment::Greeting, late(), limit).to_string();
        assert_eq!([reached(Duration::ZERO), greeted(Duration::ZERO)], [text.clone(), text.clone()]);
        let limit = Duration::from_millis(1);
        assert!(reached(limit) != text && greeted(limit) != text);
        assert_ne!(failed("h:1/0", Moment::Request, late(), Duration::ZERO).to_string(), text);
    }

    #[test]
    fn a_text_never_repeats_its_source() {
        let limit = Duration::from_secs(3);
        let kinds = [1, 2, 13, 32, 99, 101, 104, 110, 111, 113].map(io::Error::from_raw_os_error);
        for (number, error) in kinds.into_iter().enumerate() {
            let again = || io::Error::from_raw_os_error(error.raw_os_error().unwrap_or(0));
            let endpoint = if number % 2 == 0 { Endpoint::Tcp("h".into(), 1) } else { Endpoint::Unix("/s".into()) };
            let errors = [
                not_reached("h:1/0", &endpoint, NoConnection::NotResolved(again()), limit),
                not_reached("h:1/0", &endpoint, NoConnection::Failed(again()), limit),
                failed("h:1/0", Moment::Handshake, again(), limit),
                failed("h:1/0", Moment::Greeting, again(), limit),
                failed("h:1/0", Moment::Request, again(), limit),
            ];
            for error in errors {
                let source = error.source().expect("it has one").to_string();
                assert!(!error.to_string().contains(&source), "{error}: {source}");
                assert!(error.to_string().starts_with("redis at h:1/0 "), "{error}");
            }
        }
        let error = failed("h:1/0", Moment::Request, odd_reply(), limit);
        let source = error.source().expect("it has one").to_string();
        assert!(!error.to_string().contains(&source), "{error}: {source}");
    }
}
