//! A request: script, arguments, route, and the function that reads the reply.

use std::fmt;

use once_cell::sync::OnceCell;
use redis::{Cmd, ToRedisArgs, Value};

use super::Publication;
use crate::error::Stop;
use crate::name::LockName;
use crate::transport::Question;

/// A bundled script. The hash is computed at the first use.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    hash: OnceCell<String>,
}

/// A request to Redis, with the function that reads the reply.
#[derive(Debug)]
pub(crate) struct Call<T> {
    route: LockName,
    command: Cmd,
    source: Option<&'static str>,
    read: Read<T>,
    round_trips: Option<RoundTrips<T>>,
}

/// The function that reads a reply.
enum Read<T> {
    Plain(fn(&Value) -> Option<T>),
    /// The reading of another call, and a conversion.
    Mapped(Box<Mapped<T>>),
}

type Mapped<T> = dyn Fn(&Value) -> Option<T> + Send + Sync;

/// A request of several round trips over one connection, where a command depends on the replies before it.
///
/// The function begins from the start at each call, so a repetition needs no state.
pub(crate) struct RoundTrips<T>(Box<Function<T>>);

type Function<T> = dyn Fn(&mut Pipeline<'_>) -> Result<T, Stop> + Send + Sync;

/// Sends commands in one write and returns their replies, error replies among them.
pub(crate) type Pipeline<'a> = dyn FnMut(&[Cmd]) -> Result<Vec<Value>, Stop> + 'a;

impl Script {
    pub(crate) const fn new(source: &'static str) -> Self {
        Self { source, hash: OnceCell::new() }
    }

    /// Starts a call with the script and its keys; [`Call::arg`] adds the arguments.
    pub(crate) fn call<T>(&self, route: &LockName, keys: &[&[u8]], read: fn(&Value) -> Option<T>) -> Call<T> {
        let hash = self.hash.get_or_init(|| redis::Script::new(self.source).get_hash().to_owned());
        // Reserves space once for a usual number of arguments.
        let mut command = Cmd::with_capacity(USUAL_WORDS + 2 * keys.len(), USUAL_BYTES + 128 * keys.len());
        command.arg("EVALSHA").arg(hash).arg(keys.len());
        for key in keys {
            command.arg(*key);
        }
        Call { route: route.clone(), command, source: Some(self.source), read: Read::Plain(read), round_trips: None }
    }
}

impl<T> Call<T> {
    /// Makes a call of a command without a script; `words` precede the key.
    pub(crate) fn plain(words: &[&str], key: &LockName, read: fn(&Value) -> Option<T>) -> Self {
        let mut command = Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.arg(key.key());
        Self { route: key.clone(), command, source: None, read: Read::Plain(read), round_trips: None }
    }

    /// Makes a call of several round trips.
    pub(super) fn with_round_trips(
        route: &LockName,
        run: impl Fn(&mut Pipeline<'_>) -> Result<T, Stop> + Send + Sync + 'static,
    ) -> Self {
        let round_trips = Some(RoundTrips(Box::new(run)));
        Self { route: route.clone(), command: Cmd::new(), source: None, read: Read::Plain(|_| None), round_trips }
    }

    pub(crate) fn arg(mut self, value: impl ToRedisArgs) -> Self {
        self.command.arg(value);
        self
    }

    /// Adds the three arguments of a publication: channel, message, command.
    pub(super) fn publishing(self, publication: Publication<'_>) -> Self {
        self.arg(publication.channel).arg(publication.message).arg(PUBLISH)
    }

    /// The same call without the reply.
    pub(crate) fn ignoring_answer(self) -> Call<()>
    where
        T: 'static,
    {
        let round_trips = self.round_trips.map(|all| RoundTrips(Box::new(move |send| all.run(send).map(drop))));
        let read = Read::Plain(|_| Some(()));
        Call { route: self.route, command: self.command, source: self.source, read, round_trips }
    }

    /// The same call with a converted reply.
    pub(crate) fn map<U: 'static>(self, convert: fn(T) -> U) -> Call<U>
    where
        T: 'static,
    {
        let Self { route, command, source, read, round_trips } = self;
        let round_trips = round_trips.map(|all| RoundTrips(Box::new(move |send| all.run(send).map(convert))));
        let read: Box<Mapped<U>> = match read {
            Read::Plain(read) => Box::new(move |reply| read(reply).map(convert)),
            Read::Mapped(read) => Box::new(move |reply| read(reply).map(convert)),
        };
        let read = Read::Mapped(read);
        Call { route, command, source, read, round_trips }
    }

    /// The key that decides which server gets the request.
    pub(crate) fn route(&self) -> &LockName {
        &self.route
    }

    /// The function of a call with several round trips, which cannot be sent as one request.
    pub(crate) fn round_trips(&self) -> Option<&RoundTrips<T>> {
        self.round_trips.as_ref()
    }

    pub(crate) fn packed(&self) -> Vec<u8> {
        self.command.get_packed_command()
    }

    /// Whether the call runs a script, so that the source can be sent.
    pub(crate) fn has_source(&self) -> bool {
        self.source.is_some()
    }
}

impl<T> Question<Value, T> for Call<T> {
    fn read(&self, reply: &Value) -> Option<T> {
        match &self.read {
            Read::Plain(read) => read(reply),
            Read::Mapped(read) => read(reply),
        }
    }

    fn packed_with_source(&self) -> Option<Vec<u8>> {
        let source = self.source?;
        let mut words = vec![b"EVAL".to_vec(), source.as_bytes().to_vec()];
        for word in self.command.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = word {
                words.push(bytes.to_vec());
            }
        }
        Some(redis::pack_command(&words))
    }
}

impl<T> fmt::Debug for Read<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Read(..)")
    }
}

impl<T> RoundTrips<T> {
    pub(crate) fn run(&self, send: &mut Pipeline<'_>) -> Result<T, Stop> {
        (self.0)(send)
    }
}

impl<T> fmt::Debug for RoundTrips<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RoundTrips(..)")
    }
}

/// The command by which scripts publish.
pub(super) const PUBLISH: &str = "PUBLISH";
const USUAL_WORDS: usize = 12;
const USUAL_BYTES: usize = 256;
