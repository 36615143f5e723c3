//! The group lock: the values of a group are locks of their own in one hash, with owner, deadline and hold count of
//! each.

use super::{AcquireArgs, Kind, UNLOCKED, keys, prelude::*, stays};

static ACQUIRE: Script = lua!("group/acquire.lua");
static REENTER: Script = lua!("group/reenter.lua");
static RELEASE: Script = lua!("group/release.lua");
static RENEW: Script = lua!("group/renew.lua");
static FORCE_RELEASE: Script = lua!("group/force_release.lua");
static LOOK: Script = lua!("group/look.lua");

/// One value of Redisson's `getMultiLock(group, values)`. The name has the value.
#[derive(Debug)]
pub(crate) struct Group {
    /// The difference between the clocks of the server and of Redisson clients, which judge deadlines by their own.
    pub(crate) skew_ms: u64,
}

impl Kind for Group {
    fn family(&self) -> &'static str {
        "group"
    }

    fn label(&self, _: Side) -> LockKind {
        LockKind::Group
    }

    /// Who removes or takes the field of a value may leave the deadline and the count of its owner.
    fn may_leave_parts(&self) -> bool {
        true
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        self.acquire_values(&[*args], |reply| match BundleAttempt::read(reply)? {
            BundleAttempt::Granted { token } => Some(Attempt::Granted { token }),
            BundleAttempt::Refused(states) => match states[..] {
                [PartState::Told(attempt)] => Some(attempt),
                _ => None,
            },
        })
    }

    fn bundles(&self) -> bool {
        true
    }

    fn acquire_all(&self, parts: &[AcquireArgs<'_>]) -> Call<BundleAttempt> {
        self.acquire_values(parts, BundleAttempt::read)
    }

    fn reenter(&self, name: &LockName, owner: &OwnerId, raise: Raise, counts: Counts) -> Call<Result<(), Loss>> {
        let call = REENTER.call(name, &[name.key()], read_outcome).arg(name.field()).arg(owner);
        call.arg(raise.endless.millis()).arg(counts.exclusive).arg(self.skew_ms)
    }

    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
        let first = |reply: &Value| read_releases(reply)?.into_iter().next();
        let part = BundleRelease { name, owner, channel: name.channel() };
        self.release_values(&[part], stays(remaining), first)
    }

    fn release_all(&self, parts: &[BundleRelease<'_>]) -> Call<Vec<Released>> {
        self.release_values(parts, stays(None), read_releases)
    }

    fn renew(&self, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
        let call = RENEW.call(&locks[0].name, &keys(locks.iter().map(|lock| &lock.name)), RenewalAnswer::read_all);
        let with_lock =
            |call: Call<_>, lock: &Renewal| call.arg(lock.name.field()).arg(&lock.owner).arg(lock.lease_ms());
        locks.iter().fold(call, with_lock).arg(self.skew_ms)
    }

    fn look(&self, claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
        look::each(claims, |claim| command("HGET", (claim.name.key(), claim.name.field())), look::by_owner)
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        let call = FORCE_RELEASE.call(name, &[name.key()], |reply| Some(Ok(int(reply)? == 1)));
        call.arg(name.field()).publishing(name.channel(), UNLOCKED)
    }

    fn time_to_live(&self, name: &LockName) -> Call<Option<Duration>> {
        self.hold(name).map(|hold| Some(hold?.1))
    }

    fn holder(&self, name: &LockName) -> Call<IfLock<Option<(String, u64)>>> {
        self.hold(name).map(|hold| Ok(hold.map(|(holder, _)| holder)))
    }
}

impl Group {
    fn acquire_values<T>(&self, parts: &[AcquireArgs<'_>], read: fn(&Value) -> Option<T>) -> Call<T> {
        let call = ACQUIRE.call(parts[0].name, &keys(parts.iter().map(|part| part.name)), read);
        let with_part = |call: Call<T>, part: &AcquireArgs<'_>| {
            call.arg(part.name.field()).arg(part.owner).arg(part.lease.millis())
        };
        parts.iter().fold(call, with_part).arg(self.skew_ms)
    }

    /// Releases one hold count of each value; `count` and `lease_ms` stay.
    fn release_values<T>(
        &self,
        parts: &[BundleRelease<'_>],
        (count, lease_ms): (usize, u64),
        read: fn(&Value) -> Option<T>,
    ) -> Call<T> {
        let call = RELEASE.call(parts[0].name, &keys(parts.iter().map(|part| part.name)), read);
        let with_part = |call: Call<T>, part: &BundleRelease<'_>| {
            call.arg(part.name.field()).arg(part.owner).arg(count).arg(lease_ms).arg(part.channel)
        };
        parts.iter().fold(call, with_part).arg(self.skew_ms).arg(UNLOCKED).publish_command()
    }

    fn hold(&self, name: &LockName) -> Call<Option<ValueHold>> {
        LOOK.call(name, &[name.key()], read_hold).arg(name.field()).arg(self.skew_ms)
    }
}

/// The owner of a value, its hold count, and the time that is left.
type ValueHold = ((String, u64), Duration);

/// Reads the reply to `group/look.lua`.
fn read_hold(reply: &Value) -> Option<Option<ValueHold>> {
    match list(reply)? {
        [] => Some(None),
        [owner, count, left] => Some(Some(((text(owner)?, number(count)?), Duration::from_millis(number(left)?)))),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
