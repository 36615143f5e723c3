//! The sides of the read-write lock: many readers or one writer.

use super::{AcquireArgs, Kind, Queueing};
use crate::error::Loss;
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::look::Claim;
use crate::script::{
    Attempt, Call, Counts, IfLock, Publication, Raise, Released, Renewal, RenewalAnswer, Side, query, read_write,
};
use crate::time::Lease;

/// One side of Redisson's read-write lock.
#[derive(Debug)]
pub(crate) struct ReadWrite {
    pub(crate) side: Side,
    /// Whether the keys of the lock move between servers one by one.
    pub(crate) on_cluster: bool,
}

impl Kind for ReadWrite {
    fn label(&self, side: Side) -> LockKind {
        match side {
            Side::Exclusive => LockKind::Write,
            Side::Shared => LockKind::Read,
        }
    }

    fn family(&self) -> &'static str {
        "read-write"
    }

    fn queueing(&self) -> Queueing {
        match self.side {
            Side::Exclusive => Queueing::Line,
            Side::Shared => Queueing::Together,
        }
    }

    fn side(&self) -> Side {
        self.side
    }

    fn check_reentry(&self, held: Counts) -> Result<(), &'static str> {
        if self.side == Side::Exclusive && held.exclusive == 0 {
            return Err("this thread holds the read side and would wait for itself; release the read side first");
        }
        Ok(())
    }

    fn channel(&self, name: &LockName, _: &OwnerId) -> String {
        name.read_write_channel()
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        match self.side {
            Side::Exclusive => read_write::acquire_write(args.name, args.owner, args.lease),
            Side::Shared => read_write::acquire_read(args.name, args.owner, args.lease),
        }
    }

    fn reenter(&self, name: &LockName, owner: &OwnerId, raise: Raise, counts: Counts) -> Call<Result<(), Loss>> {
        read_write::reenter(name, owner, raise, counts)
    }

    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
        let channel = name.read_write_channel();
        if self.on_cluster {
            return read_write::release_on_cluster(name, owner, remaining, &channel);
        }
        read_write::release(name, owner, remaining, &channel)
    }

    fn renew(&self, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
        read_write::renew(locks)
    }

    fn look(&self, claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
        read_write::look(claims)
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        let message = match self.side {
            Side::Exclusive => "1",
            Side::Shared => "0",
        };
        let channel = name.read_write_channel();
        read_write::force_release(name, self.mode(), Publication { channel: &channel, message })
    }

    fn is_locked(&self, name: &LockName) -> Call<IfLock<bool>> {
        read_write::is_locked(name, self.mode()).map(Ok)
    }

    fn holder(&self, name: &LockName) -> Call<IfLock<Option<(String, u64)>>> {
        match self.side {
            Side::Exclusive => query::writer(name),
            Side::Shared => query::reader(name),
        }
    }
}

impl ReadWrite {
    fn mode(&self) -> &'static str {
        match self.side {
            Side::Exclusive => "write",
            Side::Shared => "read",
        }
    }
}
