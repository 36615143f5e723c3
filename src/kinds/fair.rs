//! The fair lock: the plain lock with a queue in Redis, in keys of its own.

use super::{AcquireArgs, Kind, Queueing, UNLOCKED, Waking, only_once, stays};
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::answer::{read_forced, read_release};
use crate::script::reply::int;
use crate::script::{Attempt, Call, Counts, IfLock, Released, Script, Side, lua};
use crate::time::Lease;

static ACQUIRE: Script = lua!("fair/acquire.lua");
static RELEASE: Script = lua!("fair/release.lua");
static LEAVE: Script = lua!("fair/leave.lua");
static FORCE_RELEASE: Script = lua!("fair/force_release.lua");

/// Redisson's fair lock, and its non-reentrant sister.
#[derive(Debug)]
pub(crate) struct Fair {
    /// How long a silent waiter keeps its place in the queue.
    pub(crate) patience: Lease,
    pub(crate) reentrant: bool,
}

impl Kind for Fair {
    fn label(&self, _: Side) -> LockKind {
        if self.reentrant { LockKind::Fair } else { LockKind::NonReentrantFair }
    }

    fn queueing(&self) -> Queueing {
        Queueing::InRedis
    }

    fn waking(&self) -> Waking {
        Waking::OwnMessage
    }

    fn check_reentry(&self, held: Counts) -> Result<(), &'static str> {
        if self.reentrant { Ok(()) } else { only_once(held) }
    }

    fn channel(&self, name: &LockName, owner: &OwnerId) -> String {
        format!("{}:{owner}", name.channel())
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        ACQUIRE
            .call(args.name, &Keys::of(args.name).list(), Attempt::read)
            .arg(args.lease.millis())
            .arg(args.owner.as_str())
            .arg(if args.waits { self.patience.millis() } else { 0 })
            .publishing(&args.name.channel(), UNLOCKED)
    }

    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
        let (count, lease_ms) = stays(remaining);
        RELEASE
            .call(name, &Keys::of(name).list(), read_release)
            .arg(owner.as_str())
            .arg(count)
            .arg(lease_ms)
            .publishing(&name.channel(), UNLOCKED)
            .arg(self.patience.millis())
    }

    /// Removes the owner as holder and from the queue.
    fn withdraw(&self, name: &LockName, owner: &OwnerId) -> Call<()> {
        LEAVE
            .call(name, &Keys::of(name).list(), |reply| int(reply).map(drop))
            .arg(owner.as_str())
            .arg(self.patience.millis())
            .publishing(&name.channel(), UNLOCKED)
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        FORCE_RELEASE.call(name, &Keys::of(name).list(), read_forced).publishing(&name.channel(), UNLOCKED)
    }
}

/// The keys of all scripts of the fair lock.
struct Keys<'a> {
    lock: &'a [u8],
    beside: [String; 3],
}

impl<'a> Keys<'a> {
    fn of(name: &'a LockName) -> Self {
        Self { lock: name.key(), beside: [name.queue(), name.queue_deadlines(), name.queue_alive()] }
    }

    fn list(&self) -> [&[u8]; 4] {
        let [queue, deadlines, alive] = &self.beside;
        [self.lock, queue.as_bytes(), deadlines.as_bytes(), alive.as_bytes()]
    }
}
