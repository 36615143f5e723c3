//! The kinds of locks, a file for each, and the questions that each answers; the engine acts:
//!
//! 1. `plain`: the plain lock; its holder may take the lock again, or may not.
//! 2. `fair`: the plain lock with a queue; first come, first served, across machines.
//! 3. `spin`: the plain lock without messages; waiters ask after pauses.
//! 4. `fenced`: the plain lock with numbered grants.
//! 5. `read_write`: many readers or one writer; a handle for each side.
//! 6. `leader`: the fenced lock of an election, with the text of its holder.
//! 7. `token`: one value under the key, as most lock recipes for Redis do.
//! 8. `group`: many values under one key, each a lock of its own.
//! 9. `permits`: permits of a semaphore, with a time to live for each.
//!
//! The defaults fit a hash of an owner and a count. `semaphore` and `latch` are counts that nobody owns, so they are no
//! [`Kind`].

mod fair;
mod fenced;
mod group;
pub(crate) mod latch;
pub(crate) mod leader;
pub(crate) mod permits;
mod plain;
mod read_write;
pub(crate) mod semaphore;
mod spin;
mod token;

pub(crate) use fair::Fair;
pub use fenced::ACCEPT_IF_NOT_OLDER;
pub(crate) use fenced::Fenced;
pub(crate) use group::Group;
pub use leader::Leader;
pub(crate) use plain::Plain;
pub(crate) use read_write::ReadWrite;
pub use spin::Backoff;
pub(crate) use spin::Spin;
pub(crate) use token::TokenLock;
pub use token::{ReleaseBy, TokenOptions};

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};

use crate::durability::Durability;
use crate::script::query;
use crate::transport::{Confirmation, PubSub};
use prelude::*;

/// What most kinds import.
mod prelude {
    pub(super) use std::time::Duration;

    pub(super) use redis::Value;

    pub(super) use crate::error::Loss;
    pub(super) use crate::listing::LockKind;
    pub(super) use crate::name::{Joined, LockName};
    pub(super) use crate::owner::OwnerId;
    pub(super) use crate::reply::{command, int, list, number, text};
    pub(super) use crate::script::answer::{NO_RECEIVERS, read_forced, read_outcome, read_release};
    pub(super) use crate::script::bundle::{BundleAttempt, BundleRelease, PartState, read_releases};
    pub(super) use crate::script::look::{self, Claim};
    pub(super) use crate::script::once::{self, Once, is_one};
    pub(super) use crate::script::{
        Attempt, Call, Counts, IfLock, Raise, Released, Renewal, RenewalAnswer, Script, Side, lua,
    };
    pub(super) use crate::time::Lease;
}

static ACQUIRE: Script = lua!("plain/acquire.lua");
static ACQUIRE_ALL: Script = lua!("plain/acquire_all.lua");
static REENTER: Script = lua!("plain/reenter.lua");
static RELEASE: Script = lua!("plain/release.lua");
static RELEASE_ALL: Script = lua!("plain/release_all.lua");
static HAND_ON: Script = lua!("plain/hand_on.lua");
static RENEW: Script = lua!("plain/renew.lua");
static FORCE_RELEASE: Script = lua!("plain/force_release.lua");
static TOUCH: Script = lua!("durability/touch.lua");

/// A kind of lock: the requests that define its behaviour.
///
/// The default methods implement locks that are stored as a hash of one owner and its hold count. A panic in code of the
/// caller leaves no data half changed, because no mutex is held while that code runs.
pub(crate) trait Kind: fmt::Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// The family of the kind. Handles of one family share their holds, and one script renews the locks of a family.
    fn family(&self) -> &'static str {
        "hash"
    }

    /// The kind for events and lists, by the side that is held.
    fn label(&self, side: Side) -> LockKind;

    /// What an error calls a hold.
    fn noun(&self) -> &'static str {
        self.label(self.side()).noun()
    }

    /// Encodes the owner for Redis; different owners must stay different.
    fn encode_owner(&self, owner: OwnerId) -> OwnerId {
        owner
    }

    /// The way in which threads of this process wait for the same lock.
    fn queueing(&self) -> Queueing {
        Queueing::Line
    }

    /// The pauses of waiters, for a kind without messages.
    fn pauses(&self) -> Option<Backoff> {
        None
    }

    /// Whether processes stand back for each other. Readers exclude no reader, and a queue in Redis has an order.
    fn stands_back(&self) -> bool {
        matches!(self.queueing(), Queueing::Line | Queueing::Counted(_))
    }

    /// Whether the kind runs scripts. A lock without scripts keeps the lease that it was taken with.
    fn runs_scripts(&self) -> bool {
        true
    }

    /// Whether a hold that was lost may have left parts in Redis, which its last guard gives back.
    fn may_leave_parts(&self) -> bool {
        false
    }

    /// The side of the lock that a guard of this kind holds.
    fn side(&self) -> Side {
        Side::Exclusive
    }

    /// Checks whether the lock may be taken with this lease; otherwise returns the reason.
    fn check_lease(&self, _: Option<Lease>) -> Result<(), &'static str> {
        Ok(())
    }

    /// Checks whether a thread with these guards may take the lock again; otherwise returns the reason.
    fn check_reentry(&self, _: Counts) -> Result<(), &'static str> {
        Ok(())
    }

    /// The channel on which releases are published for this waiter; empty for a kind without messages.
    fn channel<'a>(&self, name: &'a LockName, _: &'a OwnerId) -> Joined<'a> {
        name.channel()
    }

    /// The key that has the hold.
    fn held_under(&self, name: &LockName) -> Vec<u8> {
        name.key().to_vec()
    }

    /// The step that waits until replicas have the hold.
    fn confirmation(&self, name: &LockName, needs: Durability) -> Confirmation {
        let call = TOUCH.call(name, &[&self.held_under(name)[..]], int);
        // With its source: the step has no second chance, and costs a round trip in any case.
        Confirmation { touch: call.packed(true, PubSub::Plain), needs }
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        let call = ACQUIRE.call(args.name, &[args.name.key()], Attempt::read);
        call.arg(args.lease.millis()).arg(args.owner)
    }

    /// Whether one call can take several locks of this family.
    fn bundles(&self) -> bool {
        false
    }

    /// Takes all locks for new holds, or none. `parts` are locks of this family and of one server, with different
    /// names, at least one and at most [`MOST_PARTS`](crate::script::bundle::MOST_PARTS).
    fn acquire_all(&self, parts: &[AcquireArgs<'_>]) -> Call<BundleAttempt> {
        let call = ACQUIRE_ALL.call(parts[0].name, &keys(parts.iter().map(|part| part.name)), BundleAttempt::read);
        parts.iter().fold(call, |call, part| call.arg(part.owner).arg(part.lease.millis()))
    }

    /// Releases all locks, also when some of them are lost. The rules for `parts` are those of
    /// [`acquire_all`](Self::acquire_all). A message on a channel that several parts share is published once, and
    /// counted for the first part.
    fn release_all(&self, parts: &[BundleRelease<'_>]) -> Call<Vec<Released>> {
        let call = RELEASE_ALL.call(parts[0].name, &keys(parts.iter().map(|part| part.name)), read_releases);
        let call = parts.iter().fold(call, |call, part| call.arg(part.owner).arg(part.channel));
        call.arg(UNLOCKED).publish_command()
    }

    /// Builds the re-entry; `counts` include the new guard.
    fn reenter(&self, name: &LockName, owner: &OwnerId, raise: Raise, counts: Counts) -> Call<Result<(), Loss>> {
        let call = REENTER.call(name, &[name.key()], read_outcome);
        call.arg(raise.endless.millis()).arg(owner).arg(counts.exclusive)
    }

    /// Builds the release. `remaining` are the counts that stay, with the lease for them; `None` releases the lock.
    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
        let (count, lease_ms) = stays(remaining);
        let call = RELEASE.call(name, &[name.key()], read_release).arg(owner).arg(count).arg(lease_ms);
        call.publishing(self.channel(name, owner), UNLOCKED)
    }

    /// Whether a release can hand the lock on to a thread of this process that waits for a lock of such a kind, too.
    fn hands_on(&self) -> bool {
        false
    }

    /// Gives the lock to another owner, for a new hold with this lease, in place of a release.
    fn hand_on(&self, name: &LockName, owner: &OwnerId, next: &OwnerId, lease: Lease) -> Call<Result<(), Loss>> {
        let call = HAND_ON.call(name, &[name.key()], read_outcome);
        call.arg(owner).arg(next).arg(lease.millis())
    }

    /// Removes an owner whose acquire has an unknown outcome: its hold, and its place in a queue.
    fn withdraw(&self, name: &LockName, owner: &OwnerId) -> Call<()> {
        self.release(name, owner, None).map(drop)
    }

    /// Renews these holds on one server. `locks` must not be empty.
    fn renew(&self, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
        renew_by(&RENEW, locks)
    }

    /// Checks whether these holds still exist. `claims` must not be empty.
    fn look(&self, claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
        look::fields(claims)
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        let nobody = OwnerId::encoded("");
        FORCE_RELEASE.call(name, &[name.key()], read_forced).publishing(self.channel(name, &nobody), UNLOCKED)
    }

    /// Reads the time to live of the lock; `None` for a free lock, the longest duration without an expiry.
    fn time_to_live(&self, name: &LockName) -> Call<Option<Duration>> {
        query::time_to_live(name)
    }

    /// Reads an owner of the lock, and its hold count.
    fn holder(&self, name: &LockName) -> Call<IfLock<Option<(String, u64)>>> {
        query::holder(name)
    }
}

/// The arguments of an acquire.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AcquireArgs<'a> {
    pub(crate) name: &'a LockName,
    pub(crate) owner: &'a OwnerId,
    pub(crate) lease: Lease,
    /// Whether the caller waits; otherwise the caller asks once. No matter for one of several locks.
    pub(crate) waits: bool,
}

/// How threads of one process wait for the same lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queueing {
    /// Threads queue, and only the first thread asks Redis, because only one thread can get the lock.
    Line,
    /// Each thread asks, because several threads may hold the lock.
    Together,
    /// Each thread joins the queue in Redis, hears messages on a channel of its own, and leaves the queue when it gives
    /// up.
    InRedis,
    /// Threads queue by their wish of a count, and a message wakes the threads whose wishes fit.
    Counted(u32),
}

/// The message "unlocked", as every client of these locks understands it.
const UNLOCKED: &str = "0";

/// Renews by a script that takes a key, an owner and a lease for each hold.
fn renew_by(script: &'static Script, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
    let call = script.call(&locks[0].name, &keys(locks.iter().map(|lock| &lock.name)), RenewalAnswer::read_all);
    locks.iter().fold(call, |call, lock| call.arg(&lock.owner).arg(lock.lease_ms()))
}

/// The keys of these locks.
fn keys<'a>(names: impl Iterator<Item = &'a LockName>) -> Vec<&'a [u8]> {
    names.map(LockName::key).collect()
}

/// The hold count that stays after a release, and the lease for it in ms; zeros without a hold.
fn stays(remaining: Option<(Counts, Lease)>) -> (usize, u64) {
    remaining.map_or((0, 0), |(counts, lease)| (counts.exclusive, lease.millis()))
}

/// The reason why a thread that holds a lock of a kind without re-entry cannot take it again.
const ONLY_ONCE: &str = "this thread holds the lock already, and this kind of lock cannot be taken twice";

#[cfg(test)]
mod tests;
