//! A request: script, arguments, route, and the function that reads the reply.

use once_cell::race::OnceBox;
use redis::{Cmd, Value};

use super::words::{Word, Words, write, write_line};
use crate::error::{Refusal, Stop};
use crate::name::LockName;
use crate::reply::{Pipeline, known};
use crate::transport::{Confirmation, PubSub, Question};

/// A bundled script. The words that call the script by its hash are written at the first use, by no thread alone: a
/// forked child would wait for the thread of its parent.
pub(crate) struct Script {
    source: &'static str,
    head: OnceBox<Vec<u8>>,
}

/// A request to Redis, with the function that reads the reply.
pub(crate) struct Call<T> {
    route: LockName,
    /// The script whose name precedes the words.
    script: Option<&'static Script>,
    words: Words,
    /// The place among the words where the command that publishes belongs.
    publishes_at: Option<u32>,
    read: Read<T>,
    round_trips: Option<Box<RoundTrips<T>>>,
    confirmation: Option<Box<Confirmed<T>>>,
}

/// A wait for replicas, and the answers that need it.
struct Confirmed<T> {
    confirmation: Confirmation,
    is_needed: fn(&T) -> bool,
}

/// The function that reads a reply.
enum Read<T> {
    Plain(fn(&Value) -> Option<T>),
    /// The reading of another call, and a conversion.
    Mapped(Box<Mapped<T>>),
}

type Mapped<T> = dyn Fn(&Value) -> Option<T> + Send + Sync;

/// Several round trips over one connection, where a command depends on the replies before it.
///
/// The function begins from the start at each call, so a repetition needs no state.
pub(crate) type RoundTrips<T> = dyn Fn(&mut Pipeline<'_>, PubSub) -> Result<T, Stop> + Send + Sync;

impl Script {
    pub(crate) const fn new(source: &'static str) -> Self {
        Self { source, head: OnceBox::new() }
    }

    /// Starts a call with the script and its keys; [`Call::arg`] adds the arguments.
    pub(crate) fn call<T>(
        &'static self,
        route: &LockName,
        keys: &[impl Word],
        read: fn(&Value) -> Option<T>,
    ) -> Call<T> {
        let mut words = Words::with_room(USUAL_BYTES + 64 * keys.len());
        words.add(keys.len());
        keys.iter().for_each(|key| words.add(key));
        Call { script: Some(self), ..Call::of_words(route, words, Read::Plain(read)) }
    }

    /// The words that name the script by its hash, as sent.
    fn by_hash(&self) -> &[u8] {
        self.head.get_or_init(|| Box::new(named("EVALSHA", redis::Script::new(self.source).get_hash())))
    }
}

/// The words that name a script.
fn named(command: &str, script: &str) -> Vec<u8> {
    let mut words = vec![];
    write(&mut words, command);
    write(&mut words, script);
    words
}

impl<T> Call<T> {
    fn of_words(route: &LockName, words: Words, read: Read<T>) -> Self {
        let route = route.clone();
        Self { route, script: None, words, publishes_at: None, read, round_trips: None, confirmation: None }
    }

    /// Makes a call of a command without a script, with the key as its first argument.
    pub(crate) fn plain(command: &str, key: &LockName, read: fn(&Value) -> Option<T>) -> Self {
        Self::of_words(key, Words::with_room(0), Read::Plain(read)).arg(command).arg(key.key())
    }

    /// Makes a call of several round trips, which publishes by the kind of pub/sub that `run` is told.
    pub(crate) fn with_round_trips(
        route: &LockName,
        run: impl Fn(&mut Pipeline<'_>, PubSub) -> Result<T, Stop> + Send + Sync + 'static,
    ) -> Self {
        Self { round_trips: Some(Box::new(run)), ..Self::of_words(route, Words::with_room(0), Read::Plain(|_| None)) }
    }

    #[inline(always)]
    pub(crate) fn arg(mut self, word: impl Word) -> Self {
        self.words.add(word);
        self
    }

    /// Adds the three arguments of a publication: channel, message, command.
    #[inline(always)]
    pub(crate) fn publishing(self, channel: impl Word, message: &str) -> Self {
        self.arg(channel).arg(message).publish_command()
    }

    /// Adds the command that publishes. The word is known when the call is packed: the client chooses its kind of pub/sub
    /// over its first connection.
    #[inline(always)]
    pub(crate) fn publish_command(mut self) -> Self {
        self.publishes_at = u32::try_from(self.words.bytes.len()).ok();
        self
    }

    /// Converts the reply of the call.
    pub(crate) fn map<U: 'static>(self, convert: fn(T) -> U) -> Call<U>
    where
        T: 'static,
    {
        let Self { route, script, words, publishes_at, read, round_trips, .. } = self;
        let round_trips = round_trips
            .map(|run| -> Box<RoundTrips<U>> { Box::new(move |send, pub_sub| run(send, pub_sub).map(convert)) });
        let read: Box<Mapped<U>> = match read {
            Read::Plain(read) => Box::new(move |reply| read(reply).map(convert)),
            Read::Mapped(read) => Box::new(move |reply| read(reply).map(convert)),
        };
        let read = Read::Mapped(read);
        Call { route, script, words, publishes_at, read, round_trips, confirmation: None }
    }

    /// Lets answers count only after a wait for replicas, where `is_needed`. A conversion drops the wait.
    #[inline(always)]
    pub(crate) fn confirmed(self, confirmation: Option<Confirmation>, is_needed: fn(&T) -> bool) -> Self {
        let confirmation = confirmation.map(|confirmation| Box::new(Confirmed { confirmation, is_needed }));
        Self { confirmation, ..self }
    }

    /// Ends the round trips at a reply that names another server, so that the whole call goes there.
    pub(crate) fn following_its_key(self) -> Self
    where
        T: 'static,
    {
        let following = |run: Box<RoundTrips<T>>| -> Box<RoundTrips<T>> {
            Box::new(move |send, pub_sub| {
                let mut send = |commands: &[Cmd]| {
                    let replies = send(commands)?;
                    let elsewhere = replies.iter().filter_map(Refusal::in_reply).find(Refusal::is_of_routing);
                    elsewhere.map_or(Ok(replies), |refusal| Err(Stop::Refused(refusal)))
                };
                run(&mut send, pub_sub)
            })
        };
        Self { round_trips: self.round_trips.map(following), ..self }
    }

    /// The key that decides which server gets the request.
    pub(crate) fn route(&self) -> &LockName {
        &self.route
    }

    /// The function of a call with several round trips, which cannot be sent as one request.
    pub(crate) fn round_trips(&self) -> Option<&RoundTrips<T>> {
        self.round_trips.as_deref()
    }

    /// The request of a client with this kind of pub/sub.
    pub(crate) fn packed(&self, whole: bool, pub_sub: PubSub) -> Vec<u8> {
        let mut request = vec![];
        self.pack(whole, pub_sub, &mut request);
        request
    }

    /// The command of the call, for round trips.
    fn command(&self, whole: bool, pub_sub: PubSub) -> Cmd {
        let words = redis::parse_redis_value(&self.packed(whole, pub_sub)).ok();
        let words = words.and_then(|words| redis::from_redis_value(words).ok());
        let mut command = Cmd::new();
        command.arg::<Vec<Vec<u8>>>(words.unwrap_or_default());
        command
    }

    /// Runs the call as one of several round trips.
    pub(crate) fn run(&self, send: &mut Pipeline<'_>, pub_sub: PubSub) -> Result<T, Stop> {
        let mut answers = pipelined(std::slice::from_ref(self), pub_sub, send)?;
        known(answers.pop())?.map_err(Stop::Refused)
    }
}

/// Sends calls of one script in one write, and returns the answer to each.
pub(crate) fn pipelined<T>(
    calls: &[Call<T>],
    pub_sub: PubSub,
    send: &mut Pipeline<'_>,
) -> Result<Vec<Result<T, Refusal>>, Stop> {
    let commands: Vec<_> = calls.iter().map(|call| call.command(false, pub_sub)).collect();
    let mut replies = send(&commands)?;
    let unknown = |reply: &Value| matches!(reply, Value::ServerError(error) if error.code() == "NOSCRIPT");
    let again: Vec<_> = (0..calls.len()).filter(|&place| replies.get(place).is_some_and(unknown)).collect();
    if !again.is_empty() {
        let commands: Vec<_> = again.iter().map(|&place| calls[place].command(true, pub_sub)).collect();
        for (place, reply) in again.into_iter().zip(send(&commands)?) {
            replies[place] = reply;
        }
    }
    let answer = |(call, reply): (&Call<T>, Value)| match Refusal::in_reply(&reply) {
        Some(refusal) => Some(Err(refusal)),
        None => call.read(&reply).map(Ok),
    };
    known(calls.iter().zip(replies).map(answer).collect())
}

impl<T> Question<Value, T> for Call<T> {
    fn read(&self, reply: &Value) -> Option<T> {
        match &self.read {
            Read::Plain(read) => read(reply),
            Read::Mapped(read) => read(reply),
        }
    }

    fn pack(&self, whole: bool, pub_sub: PubSub, request: &mut Vec<u8>) {
        let words = &self.words.bytes;
        let (before, after) = words.split_at(self.publishes_at.map_or(words.len(), |place| place as usize));
        let of_the_script = if self.script.is_some() { 2 } else { 0 };
        write_line(request, b'*', of_the_script + self.words.count + usize::from(self.publishes_at.is_some()));
        match self.script {
            Some(script) if whole => request.extend(named("EVAL", script.source)),
            Some(script) => request.extend_from_slice(script.by_hash()),
            None => {}
        }
        request.reserve(words.len());
        request.extend_from_slice(before);
        if self.publishes_at.is_some() {
            write(request, pub_sub.publish());
        }
        request.extend_from_slice(after);
    }

    fn confirmation(&self, answer: &T) -> Option<&Confirmation> {
        let Confirmed { confirmation, is_needed } = self.confirmation.as_deref()?;
        is_needed(answer).then_some(confirmation)
    }
}

/// The room for an ordinary key, its channel, and a few arguments.
const USUAL_BYTES: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kinds::{Kind, Plain};
    use crate::owner::{Owners, ThreadNumber};
    use crate::script::{Counts, Raise};
    use crate::time::Lease;

    const PLAIN: Plain = Plain { reentrant: true };

    #[test]
    fn a_script_that_is_unknown_is_sent_with_its_source() {
        let (name, (_, owner)) = (LockName::new("n").unwrap(), Owners::new().draw(ThreadNumber(1)));
        let lease = Lease::new(std::time::Duration::from_secs(1)).unwrap();
        let (raise, counts) = (Raise { lease, endless: lease }, Counts { exclusive: 1, shared: 0 });
        let calls: Vec<_> = (0..5).map(|_| PLAIN.reenter(&name, &owner, raise, counts)).collect();
        const NO: &str = "-NOSCRIPT no\r\n";
        let mut rounds = vec![
            (vec!["EVALSHA"; 5], vec![NO, ":0\r\n", NO, NO, NO]),
            (vec!["EVAL"; 4], vec![":1\r\n", "-ASK 5 127.0.0.1:1\r\n", ":1\r\n", ":0\r\n"]),
        ]
        .into_iter();
        let answers = pipelined(&calls, PubSub::Plain, &mut |commands| {
            let (words, replies) = rounds.next().unwrap();
            let sent: Vec<_> = commands
                .iter()
                .map(|command| match command.args_iter().next() {
                    Some(redis::Arg::Simple(word)) => String::from_utf8_lossy(word).into_owned(),
                    _ => String::new(),
                })
                .collect();
            assert_eq!(sent, words);
            Ok(replies.iter().map(|reply| redis::parse_redis_value(reply.as_bytes()).unwrap()).collect())
        });
        let answers = answers.unwrap();
        let gone = Ok(Err(crate::error::Loss::Gone));
        assert_eq!((&answers[..2], &answers[3..]), (&[Ok(Ok(())), gone.clone()][..], &[Ok(Ok(())), gone][..]));
        assert_eq!(answers[2].as_ref().unwrap_err().word(), "ASK");
    }

    #[test]
    fn a_call_publishes_by_the_kind_of_pub_sub_at_its_sending() {
        let (name, (_, owner)) = (LockName::new("PUBLISH").unwrap(), Owners::new().draw(ThreadNumber(1)));
        static RELEASE: Script = Script::new("return 1");
        let call = RELEASE.call(&name, &[name.key()], |_| Some(1)).arg(&owner).publishing("PUBLISH", "PUBLISH");
        let words = |packed: Vec<u8>, word: &str| String::from_utf8_lossy(&packed).matches(word).count();
        assert_eq!(words(call.packed(false, PubSub::Plain), "\r\nPUBLISH\r\n"), 4);
        assert_eq!(words(call.packed(false, PubSub::Sharded), "\r\nPUBLISH\r\n"), 3, "names stay as they are");
        assert_eq!(words(call.packed(false, PubSub::Sharded), "\r\nSPUBLISH\r\n"), 1);
        assert_eq!(words(call.packed(true, PubSub::Sharded), "\r\nSPUBLISH\r\n"), 1);
        let mapped = call.map(|_| ()).map(drop);
        assert_eq!(words(mapped.packed(false, PubSub::Sharded), "\r\nSPUBLISH\r\n"), 1);
    }
}
