//! The plain lock: exclusive, and its holder may take it again.

use crate::engine::{Kind, Queueing};
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::{Announcement, Attempt, Call, Kept, Renewal, RenewalAnswers, Told, reentrant};
use crate::time::Lease;

/// Redisson's `RLock`.
#[derive(Debug)]
pub(crate) struct Reentrant;

impl Kind for Reentrant {
    fn label(&self) -> &'static str {
        "reentrant"
    }

    fn queueing(&self) -> Queueing {
        Queueing::Line
    }

    fn channel(&self, name: &LockName) -> String {
        name.channel()
    }

    fn acquire(&self, name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Attempt> {
        reentrant::acquire(name, owner, lease)
    }

    fn reenter(&self, name: &LockName, owner: &OwnerId, lease: Lease, count: usize) -> Call<Kept<()>> {
        reentrant::reenter(name, owner, lease, count)
    }

    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(usize, Lease)>) -> Call<Kept<Told>> {
        reentrant::release(name, owner, remaining, announcement(&self.channel(name)))
    }

    fn renew(&self, locks: &[Renewal]) -> Call<RenewalAnswers> {
        reentrant::renew(locks)
    }

    fn force_release(&self, name: &LockName) -> Call<bool> {
        reentrant::force_release(name, announcement(&self.channel(name)))
    }
}

/// "Unlocked", as every client of these locks understands it.
fn announcement(channel: &str) -> Announcement<'_> {
    Announcement { channel, message: "0", publish: "PUBLISH" }
}
