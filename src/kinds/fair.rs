//! The fair lock: the plain lock with a queue in Redis, in keys of its own.

use super::{AcquireArgs, Kind, ONLY_ONCE, Queueing, UNLOCKED, prelude::*, stays};

static ACQUIRE: Script = lua!("fair/acquire.lua");
static RELEASE: Script = lua!("fair/release.lua");
static LEAVE: Script = lua!("fair/leave.lua");

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

    fn check_reentry(&self, _: Counts) -> Result<(), &'static str> {
        if self.reentrant { Ok(()) } else { Err(ONLY_ONCE) }
    }

    fn channel<'a>(&self, name: &'a LockName, owner: &'a OwnerId) -> Joined<'a> {
        name.channel().and([":", owner.as_str()])
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        let patience_ms = if args.waits { self.patience.millis() } else { 0 };
        let call = call(&ACQUIRE, args.name, Attempt::read).arg(args.lease.millis()).arg(args.owner).arg(patience_ms);
        call.publishing(args.name.channel(), UNLOCKED)
    }

    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
        let (count, lease_ms) = stays(remaining);
        let call = call(&RELEASE, name, read_release).arg(owner).arg(count).arg(lease_ms);
        self.waking_the_next(call, name)
    }

    /// Removes the owner as holder and from the queue.
    fn withdraw(&self, name: &LockName, owner: &OwnerId) -> Call<()> {
        let call = call(&LEAVE, name, |reply| int(reply).map(drop));
        call.arg(owner).arg(self.patience.millis()).publishing(name.channel(), UNLOCKED)
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        let call = call(&RELEASE, name, |reply| read_forced(list(reply)?.first()?));
        self.waking_the_next(call.arg("").arg("-1").arg(0_u64), name)
    }
}

impl Fair {
    fn waking_the_next<T>(&self, release: Call<T>, name: &LockName) -> Call<T> {
        release.publishing(name.channel(), UNLOCKED).arg(self.patience.millis())
    }
}

/// Starts a call with the keys of all scripts of the fair lock.
fn call<T>(script: &'static Script, name: &LockName, read: fn(&Value) -> Option<T>) -> Call<T> {
    script.call(name, &[name.as_key(), name.queue(), name.queue_deadlines(), name.queue_alive()], read)
}
