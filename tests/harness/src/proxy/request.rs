//! What the proxy has seen, and which of it a test is talking about.

use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// One request of a client, one copy of it, or one message of a server to its subscribers.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Request {
    /// Counts everything that the proxy has seen, from 0.
    pub number: u64,
    /// Counts the connections of the proxy, from 0.
    pub connection: usize,
    /// The command in upper case; of a message its kind, as `MESSAGE` or `INVALIDATE`.
    pub command: String,
    /// What follows the command; of a message the channel and the payload.
    pub arguments: Vec<Vec<u8>>,
    /// The whole frame.
    pub bytes: Arc<[u8]>,
    /// When the proxy had read the whole frame.
    pub at: Instant,
    pub(super) kind: Kind,
}

impl Request {
    /// An argument as text, empty if there are not that many; number 0 follows the command.
    pub fn text(&self, argument: usize) -> String {
        let bytes = self.arguments.get(argument).map_or(&[][..], Vec::as_slice);
        String::from_utf8_lossy(bytes).into_owned()
    }

    /// Tells whether these bytes occur inside any single argument.
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

/// What has become of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fate {
    /// It is in the proxy: held, delayed, or behind such a one.
    Waiting,
    /// All of it was handed to the server's socket (a message: to the client's); nothing came back.
    Forwarded,
    /// The server has answered with these bytes, whether or not the client was to see them.
    Answered(Vec<u8>),
    /// A rule kept it, or a part of it, from the server.
    Dropped,
    /// The connection to the server ended before an answer.
    Failed(String),
}

impl Fate {
    /// Tells whether nothing can happen to the request any more.
    pub fn is_final(&self) -> bool {
        !matches!(self, Fate::Waiting | Fate::Forwarded)
    }
}

/// Picks requests: by command, by argument, by connection, and by which one of them it is.
///
/// A rule acts on the first fitting request after its making, unless [`nth`](When::nth),
/// [`times`](When::times) or [`always`](When::always) say otherwise.
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

    /// A request with this command, in upper or lower case.
    pub fn command(name: &str) -> When {
        When::commands(&[name])
    }

    /// A request with one of these commands.
    pub fn commands(names: &[&str]) -> When {
        When { commands: names.iter().map(|name| name.to_uppercase()).collect(), ..When::any() }
    }

    /// A call of a script, by its hash or by its text.
    pub fn script() -> When {
        When::commands(&["EVALSHA", "EVAL"])
    }

    /// A message of the server to a subscriber instead of a request.
    pub fn message() -> When {
        When { kind: Kind::Message, ..When::any() }
    }

    /// Only on this connection.
    #[must_use]
    pub fn on_connection(mut self, index: usize) -> When {
        self.connection = Some(index);
        self
    }

    /// Only if these bytes occur inside an argument; may be said several times.
    #[must_use]
    pub fn containing(mut self, bytes: impl AsRef<[u8]>) -> When {
        self.parts.push(bytes.as_ref().to_vec());
        self
    }

    /// Only if the test agrees. It runs inside the proxy: it must not call the proxy.
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

    /// As many fitting requests as this.
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
