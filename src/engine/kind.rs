//! What a kind of lock must answer; it answers questions, the engine acts.

use std::fmt;

use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::{Attempt, Call, Kept, Renewal, RenewalAnswers, Told};
use crate::time::Lease;

/// One kind of exclusive lock: the requests that make it what it is.
pub(crate) trait Kind: fmt::Debug + Send + Sync {
    /// What the kind is called; locks of one label are renewed by one script.
    fn label(&self) -> &'static str;

    /// How threads of this process wait for the same lock.
    fn queueing(&self) -> Queueing;

    /// Where a release is announced.
    fn channel(&self, name: &LockName) -> String;

    fn acquire(&self, name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Attempt>;

    fn reenter(&self, name: &LockName, owner: &OwnerId, lease: Lease, count: usize) -> Call<Kept<()>>;

    /// `remaining` is the count that stays and what is promised to it; `None` gives all back.
    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(usize, Lease)>) -> Call<Kept<Told>>;

    fn renew(&self, locks: &[Renewal]) -> Call<RenewalAnswers>;

    fn force_release(&self, name: &LockName) -> Call<bool>;
}

/// How threads of one process wait for the same lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), expect(dead_code, reason = "the kinds that share or queue in Redis come with their own issue"))]
pub(crate) enum Queueing {
    /// They line up, and only the first asks Redis: one of them can have it at a time.
    Line,
    /// Each asks for itself: several may have it at once.
    Together,
    /// Each joins the queue that Redis keeps.
    InRedis,
}
