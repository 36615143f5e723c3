//! What a kind of lock must answer; it answers questions, the engine acts.

use std::fmt;
use std::time::Duration;

use crate::error::Loss;
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::look::{self, Claim};
use crate::script::{
    Attempt, Call, Counts, Raise, Released, Renewal, RenewalAnswer, RenewalAnswers, Side, query, reentrant,
};
use crate::time::Lease;

/// One kind of exclusive lock: the requests that make it what it is.
///
/// What is given here is what all locks share that are a hash of one owner and its hold count.
pub(crate) trait Kind: fmt::Debug + Send + Sync {
    /// What the kind is called. Handles of one family share their holds, and one script renews them.
    fn family(&self) -> &'static str {
        "hash"
    }

    /// What the kind is called in events and lists, by the side that is held.
    fn label(&self, side: Side) -> LockKind;

    /// The owner as this kind writes it; different owners must stay different.
    fn encode_owner(&self, owner: OwnerId) -> OwnerId {
        owner
    }

    /// How threads of this process wait for the same lock.
    fn queueing(&self) -> Queueing {
        Queueing::Line
    }

    /// How a waiter learns that it is worth asking again.
    fn waking(&self) -> Waking {
        Waking::Message
    }

    /// Whether processes stand back for each other: one holds at a time, and a release tells all who wait.
    fn stands_back(&self) -> bool {
        self.queueing() == Queueing::Line && matches!(self.waking(), Waking::Message)
    }

    /// Which side of the lock a guard of this kind holds.
    fn side(&self) -> Side {
        Side::Exclusive
    }

    /// Whether a thread that has these guards may take one more; if not, why.
    fn check_reentry(&self, held: Counts) -> Result<(), &'static str> {
        let _ = held;
        Ok(())
    }

    /// Where a release is announced to this waiter; empty where nothing is announced.
    fn channel(&self, name: &LockName, owner: &OwnerId) -> String;

    fn acquire(&self, ask: &Ask<'_>) -> Call<Attempt>;

    /// `counts` are those after the re-entry.
    fn reenter(&self, name: &LockName, owner: &OwnerId, raise: Raise, counts: Counts) -> Call<Result<(), Loss>> {
        reentrant::reenter(name, owner, raise.endless, counts.exclusive)
    }

    /// `remaining` are the counts that stay and what is promised to them; `None` gives all back.
    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released>;

    /// Takes everything of an owner away that was never heard of: a hold, a place in a queue.
    fn withdraw(&self, name: &LockName, owner: &OwnerId) -> Call<()> {
        self.release(name, owner, None).ignoring_answer()
    }

    fn renew(&self, locks: &[Renewal]) -> Call<RenewalAnswers> {
        reentrant::renew(locks)
    }

    /// Asks whether these holds are still there, at least one; changes nothing.
    fn look(&self, claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
        look::fields(claims, |owner| vec![owner.to_string()])
    }

    fn force_release(&self, name: &LockName) -> Call<bool>;

    fn is_locked(&self, name: &LockName) -> Call<bool> {
        query::exists(name)
    }

    /// Who holds it, and how often.
    fn holder(&self, name: &LockName) -> Call<Option<(String, u64)>> {
        query::holder(name)
    }
}

/// One question for the lock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) owner: &'a OwnerId,
    pub(crate) lease: Lease,
    /// The caller waits; otherwise it asks just once.
    pub(crate) waits: bool,
}

/// How threads of one process wait for the same lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queueing {
    /// They line up, and only the first asks Redis: one of them can have it at a time.
    Line,
    /// Each asks for itself: several may have it at once.
    Together,
    /// Each joins the queue that Redis keeps, and leaves it when it gives up.
    InRedis,
}

/// How a waiter learns that it is worth asking again.
#[derive(Clone, Debug)]
pub(crate) enum Waking {
    /// A message on a channel that concerns everybody.
    Message,
    /// A message on a channel of its own.
    OwnMessage,
    /// Nobody tells: it asks after pauses.
    Pauses(Pauses),
}

/// The pause after each failed try, by the number of tries made; `None` gives up.
#[derive(Clone)]
pub(crate) struct Pauses(pub(crate) std::sync::Arc<dyn Fn(u32) -> Option<Duration> + Send + Sync>);

impl fmt::Debug for Pauses {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pauses(..)")
    }
}
