//! One error: what happened, to which lock, and what to do about it.

use std::error::Error as StdError;
use std::fmt;
use std::sync::Arc;

/// A [`Result`](std::result::Result) with this crate's [`Error`].
pub type Result<T> = std::result::Result<T, Error>;

/// Why a call failed.
///
/// "Held by someone else" is not among the reasons: a busy lock is `Ok(None)`.
///
/// ```
/// # use lockson::{Client, ErrorKind};
/// let error = Client::connect("redis://127.0.0.1:1").unwrap_err();
/// assert_eq!(error.kind(), ErrorKind::Connection);
/// ```
#[derive(Clone)]
pub struct Error(Arc<Inner>);

struct Inner {
    kind: ErrorKind,
    name: Option<String>,
    text: String,
    word: Option<String>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// The kinds of [`Error`], one for each fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// This thread holds the lock in a way that forbids taking it once more.
    AlreadyHeld,
    /// An argument is not possible; nothing was sent.
    BadInput,
    /// The caller's [`Cancel`](crate::Cancel) ended the wait; the lock is not held.
    Cancelled,
    /// The client was closed; the lock is not held.
    Closed,
    /// A setting or the URL is not possible.
    Config,
    /// Redis was not reached, or did not answer, and the request had no effect.
    Connection,
    /// This client had the lock and lost it; the reason is inside.
    Lost(Loss),
    /// There is no such hold here: never taken, given back already, or another thread's.
    NotHeld,
    /// Another kind of lock has this name.
    OtherKind,
    /// Too few of several servers agreed.
    Quorum,
    /// Redis answered with an error; [`Error::redis_word`] is its own word for it.
    Refused,
    /// A request was sent and never answered: it may have had its effect or not. What it may have
    /// left behind is cleared in the background, at the latest by its lease.
    Unknown,
    /// The server or this build cannot do it.
    Unsupported,
}

/// How a hold was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Loss {
    /// Its deadline passed without an answer from Redis that prolonged it.
    Expired,
    /// Redis has no such lock any more: deleted, flushed, forced open, or restarted empty.
    Gone,
    /// Someone else has it, or something else stands under its name.
    Taken,
    /// The client was closed while it was held.
    Closed,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self(Arc::new(Inner { kind, name: None, text: text.into(), word: None, source: None }))
    }

    pub(crate) fn with_source(
        kind: ErrorKind,
        text: impl Into<String>,
        source: impl StdError + Send + Sync + 'static,
    ) -> Self {
        Self(Arc::new(Inner { kind, name: None, text: text.into(), word: None, source: Some(Box::new(source)) }))
    }

    /// What Redis said no with.
    pub(crate) fn refused(refusal: Refusal) -> Self {
        let text = format!("redis refused with {}: {}; {}", refusal.word, refusal.text, refusal.advice());
        Self(Arc::new(Inner { kind: ErrorKind::Refused, name: None, text, word: Some(refusal.word), source: None }))
    }

    /// The loss of a hold, told to whoever uses it.
    pub(crate) fn lost(loss: Loss) -> Self {
        Self::new(ErrorKind::Lost(loss), format!("the lock was lost: {loss}; treat the guarded work as unprotected"))
    }

    /// The same error, said of one lock.
    pub(crate) fn about(self, name: &(impl fmt::Display + ?Sized)) -> Self {
        if self.0.name.is_some() {
            return self;
        }
        let name = Some(name.to_string());
        match Arc::try_unwrap(self.0) {
            Ok(inner) => Self(Arc::new(Inner { name, ..inner })),
            // Shared already: say it anew and keep the first one as the source.
            Err(shared) => Self(Arc::new(Inner {
                kind: shared.kind,
                name,
                text: shared.text.clone(),
                word: shared.word.clone(),
                source: Some(Box::new(Self(shared))),
            })),
        }
    }

    /// What happened.
    pub fn kind(&self) -> ErrorKind {
        self.0.kind
    }

    /// The name of the lock concerned, where there is one.
    pub fn lock_name(&self) -> Option<&str> {
        self.0.name.as_deref()
    }

    /// Redis's own word for a refusal: `OOM`, `READONLY`, `NOPERM`, `MISCONF`, `LOADING`, `BUSY`,
    /// `WRONGTYPE` and so on; `MAXCLIENTS` where it only says so in words.
    pub fn redis_word(&self) -> Option<&str> {
        self.0.word.as_deref()
    }

    /// Whether the server answered, and will answer the same in a moment.
    pub(crate) fn is_final_refusal(&self) -> bool {
        self.kind() == ErrorKind::Refused && !self.redis_word().is_some_and(is_passing)
    }

    /// The loss, if this error reports one.
    pub fn loss(&self) -> Option<Loss> {
        match self.0.kind {
            ErrorKind::Lost(loss) => Some(loss),
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0.name {
            Some(name) => write!(f, "lock {name:?}: {}", self.0.text),
            None => f.write_str(&self.0.text),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Error")
            .field("kind", &self.0.kind)
            .field("lock", &self.0.name)
            .field("text", &self.0.text)
            .field("source", &self.0.source)
            .finish()
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.0.source.as_ref().map(|source| &**source as &(dyn StdError + 'static))
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Expired => "its time ran out without an answer from redis that prolonged it",
            Self::Gone => "redis has it no more (deleted, flushed, forced open or restarted empty)",
            Self::Taken => "someone else has it, or something else stands under its name",
            Self::Closed => "the client was closed",
        })
    }
}

/// An error reply, reduced to the word that matters and the server's text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    word: String,
    text: String,
}

impl Refusal {
    pub(crate) fn new(reply: &redis::ServerError) -> Self {
        let detail = reply.details().unwrap_or("");
        if !is_word(reply.code()) {
            // What a script hands on as its answer, before 7.0: "@user_script: 9: -OOM ...".
            return Self::from_text(&format!("{} {detail}", reply.code()));
        }
        let text = if reply.code() == "ERR" { detail.to_owned() } else { format!("{} {detail}", reply.code()) };
        Self { word: word_of(reply.code(), detail).to_owned(), text }
    }

    /// A refusal of which only the text of the error reply is left.
    pub(crate) fn from_text(text: &str) -> Self {
        let text = without_places(text);
        let word = match text.split_once(' ') {
            Some((code, detail)) if is_word(code) => word_of(code, detail),
            _ => word_of("ERR", text),
        };
        Self { word: word.to_owned(), text: text.to_owned() }
    }

    /// The same without what the server said, which may quote a secret.
    pub(crate) fn without_text(self) -> Self {
        Self { text: "the login was not taken".into(), ..self }
    }

    pub(crate) fn word(&self) -> &str {
        &self.word
    }

    /// Whether the same request may be answered otherwise a little later.
    pub(crate) fn is_transient(&self) -> bool {
        is_passing(&self.word)
    }

    /// Whether it was a replica that spoke, so that the master is elsewhere.
    pub(crate) fn is_of_replica(&self) -> bool {
        matches!(self.word.as_str(), "READONLY" | "MASTERDOWN")
    }

    #[cfg(test)]
    pub(crate) fn for_test(word: &str) -> Self {
        Self { word: word.to_owned(), text: String::new() }
    }

    fn advice(&self) -> &'static str {
        match self.word.as_str() {
            "OOM" => "free memory or raise maxmemory (locks held can still be renewed and released)",
            "MISCONF" => "the server cannot save to its disk and takes no writes until it can",
            "NOREPLICAS" => "too few replicas are connected for min-replicas-to-write",
            "NOPERM" => "give the user the rights listed in docs/operations.md",
            "NOAUTH" | "WRONGPASS" => "check user and password",
            "READONLY" => "this server is a replica; connect to its master",
            "LOADING" => "the server is reading its data set; try again soon",
            "BUSY" => "a script or function keeps the server busy; see SCRIPT KILL",
            "WRONGTYPE" => "the key of this name is not a lock; use another name or remove it",
            "MAXCLIENTS" => "raise maxclients or close connections",
            _ => "see the server's log",
        }
    }
}

fn is_passing(word: &str) -> bool {
    matches!(word, "LOADING" | "BUSY" | "MASTERDOWN" | "TRYAGAIN" | "CLUSTERDOWN" | "READONLY" | "MAXCLIENTS")
}

/// Finds the word that tells refusals apart; servers before 7.0 bury it in the text of a script error.
fn word_of<'a>(code: &'a str, detail: &'a str) -> &'a str {
    if code != "ERR" {
        return code;
    }
    if detail.starts_with("max number of clients") {
        return "MAXCLIENTS";
    }
    // 7.0: "The user executing the script can't ...", 8.0 and Valkey: "ACL failure in script: ...".
    if detail.starts_with("The user executing the script can't") || detail.contains("ACL failure in script") {
        return "NOPERM";
    }
    // 6.2: "Error running script (call to f_...): @user_script:9: @user_script: 9: -OOM command not ...".
    // Its ACL refusals keep the plain text of the command.
    if let Some((_, buried)) = detail.strip_prefix("Error running script").and_then(|rest| rest.split_once("): ")) {
        let buried = without_places(buried);
        let word = buried.split(' ').next().filter(|word| is_word(word));
        return word.unwrap_or_else(|| word_of(code, buried));
    }
    code
}

/// The text of an error without what servers before 7.0 put in front: where in a script it happened,
/// and the marker of an error.
fn without_places(text: &str) -> &str {
    let mut text = text;
    while let Some(rest) = text.strip_prefix("@user_script:").or_else(|| text.strip_prefix("user_script:")) {
        let rest = rest.trim_start().trim_start_matches(|c: char| c.is_ascii_digit());
        text = rest.strip_prefix(':').unwrap_or(rest).trim_start();
    }
    text.strip_prefix('-').unwrap_or(text)
}

fn is_word(text: &str) -> bool {
    text.len() > 1 && text.bytes().all(|byte| byte.is_ascii_uppercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_is_found_wherever_a_server_puts_it() {
        let check = |code, detail, word| assert_eq!(word_of(code, detail), word, "{code} {detail}");
        check("OOM", "command not allowed when used memory > 'maxmemory'. script: x", "OOM");
        check("ERR", "Error running script (call to f_a): @user_script:4: -OOM command not allowed", "OOM");
        check("ERR", "The user executing the script can't run this command or subcommand script: x", "NOPERM");
        check("ERR", "ACL failure in script: User x has no permissions", "NOPERM");
        check("ERR", "max number of clients reached", "MAXCLIENTS");
        check("ERR", "Error running script (call to f_a): @user_script:4: user_script:4: - x", "ERR");
        check("ERR", "Error running script (call to f_a): @user_script:1: WRONGTYPE Operation against", "WRONGTYPE");
        let twice = "Error running script (call to f_a): @user_script:1: @user_script: 1: -READONLY You can't";
        check("ERR", twice, "READONLY");
        let acl =
            "Error running script (call to f_a): @user_script:1: @user_script: 1: The user executing the script can't";
        check("ERR", acl, "NOPERM");
        check("WRONGTYPE", "Operation against a key", "WRONGTYPE");
    }

    #[test]
    fn the_word_is_found_in_a_mere_text() {
        let check = |text, word| assert_eq!(Refusal::from_text(text).word(), word, "{text}");
        check("READONLY You can't write against a read only replica.", "READONLY");
        check("@user_script: 20: -READONLY You can't write against a read only replica.", "READONLY");
        check("@user_script: 1: The user executing the script can't run this command or subcommand", "NOPERM");
        check("ERR ACL failure in script: User x has no permissions", "NOPERM");
        check("WRONGTYPE Operation against a key holding the wrong kind of value", "WRONGTYPE");
        check("Something odd", "ERR");
    }

    #[test]
    fn an_error_names_its_lock_and_keeps_its_kind_when_shared() {
        let error = Error::lost(Loss::Gone);
        let named = error.clone().about("orders:42");
        assert_eq!(named.kind(), ErrorKind::Lost(Loss::Gone));
        assert_eq!(named.lock_name(), Some("orders:42"));
        assert!(named.to_string().starts_with("lock \"orders:42\": "), "{named}");
        assert!(named.source().is_some());
    }

    #[test]
    fn errors_travel_between_threads() {
        fn check<T: Send + Sync + 'static>() {}
        check::<Error>();
    }
}
