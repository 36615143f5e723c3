//! A request that knows its script, its route and how to read its reply.

use std::fmt;

use once_cell::sync::OnceCell;
use redis::{Cmd, ToRedisArgs, Value};

use super::Publication;
use crate::error::Refusal;
use crate::name::LockName;

/// A bundled script; its hash is computed at its first use.
#[derive(Debug)]
pub(crate) struct Script {
    source: &'static str,
    hash: OnceCell<String>,
}

/// A request to Redis and how to read its reply.
#[derive(Debug)]
pub(crate) struct Call<T> {
    route: LockName,
    command: Cmd,
    source: Option<&'static str>,
    read: fn(&Value) -> Option<T>,
    talk: Option<Talk<T>>,
}

/// What is asked in several round trips over one connection, where a request depends on the replies
/// before it.
///
/// The function begins from the start each time it is called, so that it can be repeated like any
/// request. It is `None` when a reply did not come or is of no known shape.
pub(crate) struct Talk<T>(Box<Talking<T>>);

type Talking<T> = dyn Fn(&mut Say<'_>) -> Said<T> + Send + Sync;

/// What several round trips come to.
pub(super) type Said<T> = Option<Result<T, Stop>>;

/// Says commands and hears as many replies, error replies among them; `None` when they did not come.
pub(crate) type Say<'a> = dyn FnMut(&[Cmd]) -> Option<Vec<Value>> + 'a;

/// Why a talk ended without an answer.
#[derive(Debug)]
pub(crate) enum Stop {
    Refused(Refusal),
    /// The server has no such command; nothing was done.
    Unsupported(&'static str),
}

impl Script {
    pub(crate) const fn new(source: &'static str) -> Self {
        Self { source, hash: OnceCell::new() }
    }

    /// Starts a call: the script, its keys, then its arguments by [`Call::arg`].
    pub(crate) fn call<T>(&self, route: &LockName, keys: &[&[u8]], read: fn(&Value) -> Option<T>) -> Call<T> {
        let hash = self.hash.get_or_init(|| redis::Script::new(self.source).get_hash().to_owned());
        // Room for what a script about locks is usually given, taken once.
        let mut command = Cmd::with_capacity(USUAL_WORDS + 2 * keys.len(), USUAL_BYTES + 128 * keys.len());
        command.arg("EVALSHA").arg(hash).arg(keys.len());
        for key in keys {
            command.arg(*key);
        }
        Call { route: route.clone(), command, source: Some(self.source), read, talk: None }
    }
}

impl<T> Call<T> {
    /// A call of a command that needs no script; `words` come before the key.
    pub(crate) fn plain(words: &[&str], key: &LockName, read: fn(&Value) -> Option<T>) -> Self {
        let mut command = Cmd::new();
        for word in words {
            command.arg(*word);
        }
        command.arg(key.key());
        Self { route: key.clone(), command, source: None, read, talk: None }
    }

    /// A call of several round trips.
    pub(super) fn talk(route: &LockName, talk: impl Fn(&mut Say<'_>) -> Said<T> + Send + Sync + 'static) -> Self {
        let talk = Some(Talk(Box::new(talk)));
        Self { route: route.clone(), command: Cmd::new(), source: None, read: |_| None, talk }
    }

    pub(crate) fn arg(mut self, value: impl ToRedisArgs) -> Self {
        self.command.arg(value);
        self
    }

    /// Adds the three arguments of a publication: channel, message, command.
    pub(super) fn publishing(self, publication: Publication<'_>) -> Self {
        self.arg(publication.channel).arg(publication.message).arg(PUBLISH)
    }

    /// The same call for somebody who only wants it done, whatever it answers.
    pub(crate) fn ignoring_answer(self) -> Call<()>
    where
        T: 'static,
    {
        let talk = self.talk.map(|talk| Talk(Box::new(move |say| Some(talk.0(say)?.map(drop)))));
        Call { route: self.route, command: self.command, source: self.source, read: |_| Some(()), talk }
    }

    /// The key that decides which server is asked.
    pub(crate) fn route(&self) -> &LockName {
        &self.route
    }

    /// The round trips of this call, where it takes several: then it is not sent packed.
    pub(crate) fn round_trips(&self) -> Option<&Talk<T>> {
        self.talk.as_ref()
    }

    pub(crate) fn packed(&self) -> Vec<u8> {
        self.command.get_packed_command()
    }

    /// Whether the call is a script's, so that it can be sent with the whole script.
    pub(crate) fn has_source(&self) -> bool {
        self.source.is_some()
    }

    /// The same call with the whole script in it, for a server that does not know the script.
    pub(crate) fn packed_with_source(&self) -> Option<Vec<u8>> {
        let source = self.source?;
        let mut words = vec![b"EVAL".to_vec(), source.as_bytes().to_vec()];
        for word in self.command.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = word {
                words.push(bytes.to_vec());
            }
        }
        Some(redis::pack_command(&words))
    }

    /// Reads a reply; `None` where it has a shape this call never answers with.
    pub(crate) fn read(&self, reply: &Value) -> Option<T> {
        (self.read)(reply)
    }
}

impl<T> Talk<T> {
    pub(crate) fn run(&self, say: &mut Say<'_>) -> Option<Result<T, Stop>> {
        (self.0)(say)
    }
}

impl<T> fmt::Debug for Talk<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Talk(..)")
    }
}

/// The command by which scripts publish.
pub(super) const PUBLISH: &str = "PUBLISH";
const USUAL_WORDS: usize = 12;
const USUAL_BYTES: usize = 256;

/// The integer a reply is.
pub(super) fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// The elements of a reply that is a list.
pub(super) fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}
