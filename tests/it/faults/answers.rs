//! The outcome of each call while the server refuses.

use lockson::Result;

use crate::support::prelude::*;

/// Calls that take a free lock.
pub(crate) const ACQUIRES: [&str; 3] = ["try_lock", "try_lock_for", "lock"];

/// The answer to one call.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) call: &'static str,
    /// Kind and word of the error; `None` where the call succeeded.
    pub(crate) refusal: Option<(ErrorKind, Option<String>)>,
    /// Whether the call repeated its request until the bound.
    pub(crate) asked_on: bool,
    /// Whether the call was refused at first, and reached its bound before the last answer.
    pub(crate) cut_short: bool,
}

/// The answers to all calls.
#[derive(Debug)]
pub(crate) struct Answers(pub(crate) Vec<Answer>);

/// The disturbance of the server.
pub(crate) struct Trouble<'a> {
    pub(crate) fail: &'a dyn Fn(),
    pub(crate) heal: &'a dyn Fn(),
    /// Whether holds survive the disturbance.
    pub(crate) holds_stay: bool,
}

impl Answers {
    /// Takes locks, has the server refuse, makes all calls, and checks that nothing stays behind.
    ///
    /// `connect` makes another client with the same settings and the name [`NEWCOMER`].
    pub(crate) fn taken(
        rig: &Rig,
        client: &Client,
        connect: impl FnOnce() -> Result<Client>,
        trouble: &Trouble<'_>,
    ) -> Answers {
        let bystander = rig.direct();
        let [forced, busy] = ["forced", "busy"].map(|name| bystander.get_lock(name).lock().unwrap());
        let last = client.get_lock("last").lock().unwrap();
        let twice = client.get_lock("twice");
        let (outer, inner) = (twice.lock().unwrap(), twice.lock().unwrap());
        (trouble.fail)();
        let free = client.get_lock("free");
        let ask = |call, bound, make: &mut dyn FnMut() -> Result<()>| answer(rig, call, bound, make);
        let (mut inner, mut last, mut connect) = (Some(inner), Some(last), Some(connect));
        let answers = Answers(vec![
            ask("try_lock", PATIENCE, &mut || free.try_lock().map(drop)),
            ask("try_lock_for", PATIENCE, &mut || free.try_lock_for(PATIENCE).map(drop)),
            ask("lock", PATIENCE * 2, &mut || free.lock().map(drop)),
            ask("wait", PATIENCE, &mut || {
                client.get_lock("busy").try_lock_for(PATIENCE).map(|got| assert!(got.is_none()))
            }),
            ask("re-enter", PATIENCE, &mut || twice.try_lock().map(drop)),
            ask("extend", PATIENCE, &mut || last.as_ref().expect("a guard is left").extend(LONGER)),
            ask("release of one", PATIENCE, &mut || inner.take().expect("once").unlock()),
            ask("release", PATIENCE, &mut || last.take().expect("once").unlock()),
            ask("force_unlock", PATIENCE, &mut || client.get_lock("forced").force_unlock().map(drop)),
            ask("is_locked", PATIENCE, &mut || free.is_locked().map(drop)),
            ask("connect", PATIENCE, &mut || connect.take().expect("once")().map(drop)),
        ]);
        (trouble.heal)();
        if trouble.holds_stay {
            eventually(SOON, "the server works again", || outer.extend(LONGER).is_ok());
            assert!(outer.is_held());
            eventually(SOON, "the release was made up for", || {
                bystander.get_lock("last").is_locked().is_ok_and(|held| !held)
            });
            assert!(!bystander.get_lock("free").is_locked().unwrap(), "a refused acquire left something behind");
            outer.unlock().unwrap();
            drop((forced, busy));
            rig.eventually_no_keys(SOON);
        }
        answers
    }

    /// The answer to this call.
    pub(crate) fn of(&self, call: &str) -> &Answer {
        self.0.iter().find(|answer| answer.call == call).expect("a call of the list")
    }
}

/// Makes a call that may be refused, in time; `bound` limits how long the call may repeat its request.
fn answer(rig: &Rig, call: &'static str, bound: Duration, make: &mut dyn FnMut() -> Result<()>) -> Answer {
    let mark = rig.proxy.mark();
    let connections = rig.proxy.connections_made();
    let (took, answer) = timed(make);
    assert!(took < PATIENCE * 3 + SCHEDULING, "{call} took {took:?}");
    let sent = rig.proxy.fitting_since(mark, &When::any());
    let refusal = answer.err().map(|error: Error| (error.kind(), error.redis_word().map(str::to_owned)));
    let asked_on = if call == "connect" {
        // The client under test dials in the background, too, and a server that loads its data is slow.
        rig.proxy.fitting_since(mark, &When::command("CLIENT").containing(NEWCOMER)).len() > 1
    } else {
        // Both conditions, because the background sends requests too, and because a busy machine is slow.
        let questions = sent.iter().filter(|request| !INTRODUCTION.contains(&request.command.as_str())).count();
        (questions > 1 || rig.proxy.connections_made() - connections > 1) && took >= bound / 2
    };
    let unanswered = matches!(refusal, Some((ErrorKind::Connection | ErrorKind::Unknown, _)));
    let refused = |request| matches!(rig.proxy.fate(request), Fate::Answered(reply) if is_refusal(&reply));
    Answer { call, cut_short: asked_on && unanswered && sent.iter().any(refused), refusal, asked_on }
}

/// An error reply, or a greeting in which a replica reports its role.
fn is_refusal(reply: &[u8]) -> bool {
    reply.starts_with(b"-") || String::from_utf8_lossy(reply).contains("\r\nreplica\r\n")
}

/// Whether a server that refuses with `word` may send `seen` instead: a replica reports its role on the next new
/// connection, with or without its master.
pub(crate) fn is_word_of(seen: &str, word: &str) -> bool {
    seen == word || (seen == "READONLY" && word == "MASTERDOWN")
}

/// The name of the client that `connect` makes.
pub(crate) const NEWCOMER: &str = "newcomer";
/// The first commands of a new connection.
const INTRODUCTION: [&str; 4] = ["AUTH", "CLIENT", "HELLO", "SELECT"];

/// The command timeout of the client under test: a server that gets little processor time still answers.
pub(crate) const PATIENCE: Duration = Duration::from_secs(1);
/// Longer than the time to live of every hold here, so that an extension has to be written.
const LONGER: Duration = Duration::from_secs(600);
