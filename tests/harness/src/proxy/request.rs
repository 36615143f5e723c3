//! The requests seen by the proxy, and the selection of requests by a test.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// One request of a client, one copy of a request, or one message of a server to subscribers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// The position among all recorded requests and messages, from 0.
    pub number: u64,
    /// Counts the connections of the proxy, from 0.
    pub connection: usize,
    /// The command in upper case; for a message the kind, as `MESSAGE` or `INVALIDATE`.
    pub command: String,
    /// The words after the command; for a message the channel and the payload.
    pub arguments: Vec<Vec<u8>>,
    /// The whole frame.
    pub bytes: Arc<[u8]>,
    /// When the proxy had read the whole frame.
    pub at: Instant,
    pub(super) kind: Kind,
}

impl Request {
    /// An argument as text, empty if there are fewer arguments; number 0 follows the command.
    pub fn text(&self, argument: usize) -> String {
        let bytes = self.arguments.get(argument).map_or(&[][..], Vec::as_slice);
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Whether these bytes occur inside any single argument.
    pub fn contains(&self, bytes: impl AsRef<[u8]>) -> bool {
        let wanted = bytes.as_ref();
        let occurs = |text: &Vec<u8>| text.windows(wanted.len()).any(|part| part == wanted);
        wanted.is_empty() || self.arguments.iter().any(occurs)
    }
}

/// Where a [`Request`] came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Copy,
    Message,
}

/// The outcome of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// The request is in the proxy: held, delayed, or behind a held or delayed request.
    Waiting,
    /// The whole request was sent to the server's socket (a message: to the client's); no reply came.
    Forwarded,
    /// The server has answered with these bytes, even if a rule hid the bytes from the client.
    Answered(Vec<u8>),
    /// A rule kept the request, or a part of the request, from the server.
    Dropped,
    /// The connection to the server ended before an answer.
    Failed(String),
}

impl Fate {
    /// Whether the fate is final.
    pub fn is_final(&self) -> bool {
        !matches!(self, Fate::Waiting | Fate::Forwarded)
    }
}

/// Selects requests: by command, by argument, by connection, and by position among the fitting requests.
///
/// A rule acts on the first fitting request after the creation of the rule, unless [`nth`](When::nth),
/// [`times`](When::times) or [`always`](When::always) choose others.
#[derive(Clone)]
pub struct When {
    kind: Kind,
    commands: Vec<String>,
    connection: Option<usize>,
    parts: Vec<Vec<u8>>,
    test: Option<Test>,
    pub(super) skipped: usize,
    pub(super) times: usize,
}

type Test = Arc<dyn Fn(&Request) -> bool + Send + Sync>;

impl When {
    /// Any request.
    pub fn any() -> When {
        When {
            kind: Kind::Request,
            commands: Vec::new(),
            connection: None,
            parts: Vec::new(),
            test: None,
            skipped: 0,
            times: 1,
        }
    }

    /// Selects a command, in upper or lower case.
    pub fn command(name: &str) -> When {
        When::commands(&[name])
    }

    /// Selects several commands.
    pub fn commands(names: &[&str]) -> When {
        When { commands: names.iter().map(|name| name.to_uppercase()).collect(), ..When::any() }
    }

    /// Selects script calls, by hash or by text.
    pub fn script() -> When {
        When::commands(&["EVALSHA", "EVAL"])
    }

    /// A message of the server to a subscriber instead of a request.
    pub fn message() -> When {
        When { kind: Kind::Message, ..When::any() }
    }

    /// Only on the connection with this index.
    #[must_use]
    pub fn on_connection(mut self, index: usize) -> When {
        self.connection = Some(index);
        self
    }

    /// Only if these bytes occur inside an argument; several calls add several conditions.
    #[must_use]
    pub fn containing(mut self, bytes: impl AsRef<[u8]>) -> When {
        self.parts.push(bytes.as_ref().to_vec());
        self
    }

    /// Only if the test returns true. The test runs inside the proxy and must not call the proxy.
    #[must_use]
    pub fn that(mut self, test: impl Fn(&Request) -> bool + Send + Sync + 'static) -> When {
        self.test = Some(Arc::new(test));
        self
    }

    /// From the n-th fitting request on, counted from 1.
    #[must_use]
    pub fn nth(mut self, n: usize) -> When {
        assert!(n > 0, "the first request has the number 1");
        self.skipped = n - 1;
        self
    }

    /// Selects this number of fitting requests.
    #[must_use]
    pub fn times(mut self, times: usize) -> When {
        self.times = times;
        self
    }

    /// Every fitting request.
    #[must_use]
    pub fn always(self) -> When {
        self.times(usize::MAX)
    }

    pub(super) fn is_for_messages(&self) -> bool {
        self.kind == Kind::Message
    }

    pub(super) fn fits(&self, request: &Request) -> bool {
        request.kind == self.kind
            && (self.commands.is_empty() || self.commands.contains(&request.command))
            && self.connection.is_none_or(|index| index == request.connection)
            && self.parts.iter().all(|part| request.contains(part))
            && self.test.as_ref().is_none_or(|test| test(request))
    }
}

impl fmt::Debug for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("When")
            .field("kind", &self.kind)
            .field("commands", &self.commands)
            .field("connection", &self.connection)
            .field("containing", &self.parts.iter().map(|part| String::from_utf8_lossy(part)).collect::<Vec<_>>())
            .field("test", &self.test.is_some())
            .field("skipped", &self.skipped)
            .field("times", &self.times)
            .finish()
    }
}
