//! Expiring permits: a counter of free permits, and a sorted set of taken ones, each with a time of its own.

use super::{AcquireArgs, Kind, Queueing, prelude::*};
use crate::script::query::read_time_to_live;

static ACQUIRE: Script = lua!("permits/acquire.lua");
static RELEASE: Script = lua!("permits/release.lua");
static RENEW: Script = lua!("permits/renew.lua");
static COUNT: Script = lua!("permits/count.lua");
static SET: Script = lua!("permits/set.lua");
static RELEASE_BY_ID: Script = lua!("permits/release_by_id.lua");
static UPDATE_LEASE: Script = lua!("permits/update_lease.lua");
static TIME_TO_LIVE: Script = lua!("permits/time_to_live.lua");

/// Permits of Redisson's permit-expirable semaphore, taken together.
#[derive(Debug)]
pub(crate) struct PermitLock {
    pub(crate) permits: u32,
    /// The time by which permits are taken for longer than their holder believes, because a client of Redisson takes
    /// back expired permits by its own clock.
    pub(crate) skew_ms: u64,
}

impl Kind for PermitLock {
    fn label(&self, _: Side) -> LockKind {
        LockKind::Permit
    }

    fn family(&self) -> &'static str {
        "permit"
    }

    /// The owner tells how many permits it has, so that one renewal covers holds of different numbers.
    fn encode_owner(&self, owner: OwnerId) -> OwnerId {
        owner_of(&owner, self.permits)
    }

    /// A hold of several permits is lost with the first of them.
    fn may_leave_parts(&self) -> bool {
        true
    }

    fn queueing(&self) -> Queueing {
        Queueing::Counted(self.permits)
    }

    fn side(&self) -> Side {
        Side::Shared
    }

    fn channel<'a>(&self, name: &'a LockName, _: &'a OwnerId) -> Joined<'a> {
        name.semaphore_channel()
    }

    /// The counter may be gone while permits are taken.
    fn held_under(&self, name: &LockName) -> Vec<u8> {
        name.taken_permits().text().into_bytes()
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        let name = args.name;
        let call = ACQUIRE.call(name, &[name.as_key(), name.taken_permits()], Attempt::read);
        let call = call.arg(args.lease.millis().saturating_add(self.skew_ms));
        with_ids(call.arg(name.semaphore_channel()).publish_command(), ids_of(args.owner))
    }

    /// Permits have one guard and are never re-entered, so nothing remains.
    fn release(&self, name: &LockName, owner: &OwnerId, _: Option<(Counts, Lease)>) -> Call<Released> {
        let call = RELEASE.call(name, &[name.as_key(), name.taken_permits()], read_release);
        with_ids(call.arg(name.semaphore_channel()).publish_command(), ids_of(owner))
    }

    fn renew(&self, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
        let keys: Vec<_> = locks.iter().map(|hold| hold.name.taken_permits()).collect();
        let call = RENEW.call(&locks[0].name, &keys, RenewalAnswer::read_all);
        locks.iter().fold(call, |call, hold| {
            let ids = ids_of(&hold.owner);
            with_ids(call.arg(hold.lease_ms().saturating_add(self.skew_ms)).arg(ids.len()), ids)
        })
    }

    fn look(&self, claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
        let question = |claim: &Claim| {
            let ids: Vec<_> = ids_of(&claim.owner).map(Vec::from).collect();
            command("ZMSCORE", (claim.name.taken_permits().text(), ids))
        };
        look::each(claims, question, |_, reply| match reply {
            Value::Array(scores) if scores.contains(&Value::Nil) => Some(RenewalAnswer::Lost(Loss::Gone)),
            Value::Array(_) => Some(RenewalAnswer::Renewed),
            other => RenewalAnswer::read(other),
        })
    }
}

/// Returns the owner of `count` permits in place of `owner`. The ids of the permits follow from the owner: the first 8
/// bytes of the client's id, so that a permit leads to its client, 6 bytes of the hold's number, 2 bytes of the index.
pub(crate) fn owner_of(owner: &OwnerId, count: u32) -> OwnerId {
    let text = owner.to_string();
    let mut stem = [b'0'; CLIENT_DIGITS + HOLD_DIGITS];
    let (client, hold) = stem.split_at_mut(CLIENT_DIGITS);
    let digits = text.bytes().filter(|&byte| byte != b'-');
    client.iter_mut().zip(digits).for_each(|(place, digit)| *place = digit);
    let mut rest = text.rsplit('.').next().and_then(|hold| hold.parse().ok()).unwrap_or(0_u64);
    for place in hold.iter_mut().rev() {
        *place = b"0123456789abcdef"[usize::try_from(rest % 16).unwrap_or(0)];
        rest /= 16;
    }
    let stem = std::str::from_utf8(&stem).unwrap_or_default();
    OwnerId::encoded([stem, ".", itoa::Buffer::new().format(count)].concat())
}

/// The ids of the permits of an owner that [`owner_of`] made.
pub(crate) fn ids_of(owner: &OwnerId) -> impl ExactSizeIterator<Item = [u8; 16]> {
    let (stem, count) = owner.as_str().split_once('.').unwrap_or((owner.as_str(), "0"));
    let stem = u128::from_str_radix(stem, 16).unwrap_or(0);
    let count = count.parse().unwrap_or(0_u16);
    (0..count).map(move |index| (stem << 16 | u128::from(index)).to_be_bytes())
}

/// The hexadecimal digits of client and hold in an owner: 64 and 48 bits.
const CLIENT_DIGITS: usize = 16;
const HOLD_DIGITS: usize = 12;

/// The number of free permits, which may be negative after permits were taken away, and that of taken ones.
pub(crate) fn count(name: &LockName) -> Call<(i64, i64)> {
    COUNT.call(name, &[name.as_key(), name.taken_permits()], |reply| match list(reply)? {
        [free, taken] => Some((int(free)?, int(taken)?)),
        _ => None,
    })
}

/// Sets the number of all permits; with `if_none`, only if there is no semaphore.
pub(crate) fn set(name: &LockName, once: &Once, permits: u32, if_none: bool) -> Call<bool> {
    let call = with_taken(&SET, name, once);
    call.arg(permits).arg(u8::from(if_none)).arg(name.semaphore_channel()).publish_command()
}

/// Gives these permits back, all or none.
pub(crate) fn release_by_id(name: &LockName, once: &Once, ids: &[&[u8]]) -> Call<bool> {
    let call = with_taken(&RELEASE_BY_ID, name, once);
    with_ids(call.arg(name.semaphore_channel()).publish_command(), ids)
}

pub(crate) fn update_lease(name: &LockName, once: &Once, id: &[u8], lease: Lease) -> Call<bool> {
    let call = once::call_with(&UPDATE_LEASE, name, &[name.taken_permits(), Joined::of(&once.key)], once, is_one);
    call.arg(id).arg(lease.millis())
}

/// How long a permit stays taken: `None` for a permit that is unknown or has expired, the longest duration for a permit
/// of Redisson without a lease.
pub(crate) fn time_to_live(name: &LockName, id: &[u8]) -> Call<Option<Duration>> {
    TIME_TO_LIVE.call(name, &[name.taken_permits()], read_time_to_live).arg(id)
}

/// Deletes counter and taken permits.
pub(crate) fn delete(name: &LockName, once: &Once) -> Call<bool> {
    once::delete(name, once, &[name.taken_permits()]).publishing("", "")
}

/// Starts a call about the counter and the taken permits.
fn with_taken(script: &'static Script, name: &LockName, once: &Once) -> Call<bool> {
    let keys = [name.as_key(), name.taken_permits(), Joined::of(&once.key)];
    once::call_with(script, name, &keys, once, is_one)
}

fn with_ids<T>(call: Call<T>, ids: impl IntoIterator<Item: AsRef<[u8]>>) -> Call<T> {
    ids.into_iter().fold(call, |call, id| call.arg(id.as_ref()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::owner::{Owners, ThreadId};

    #[test]
    fn ids_follow_from_the_owner_and_never_repeat() {
        let clients = [Owners::new(), Owners::new()];
        let mut all = HashSet::new();
        for owners in &clients {
            for count in [1, 2, 300] {
                let (_, owner) = owners.draw(ThreadId::current().number());
                let owner = owner_of(&owner, count);
                let ids: Vec<_> = ids_of(&owner).collect();
                assert!(ids_of(&OwnerId::encoded(owner.as_str())).eq(ids.iter().copied()));
                assert_eq!(u32::try_from(ids.len()), Ok(count));
                assert!(ids.iter().all(|id| id.len() == 16));
                for id in ids {
                    assert!(all.insert(id));
                }
            }
        }
    }

    #[test]
    fn an_id_is_client_hold_and_index() {
        let owner = OwnerId::encoded("00010203-0405-4607-8809-0a0b0c0d0e0f:7.258");
        let owner = owner_of(&owner, 2);
        assert_eq!(owner.as_str(), "0001020304054607000000000102.2");
        let ids: Vec<_> = ids_of(&owner).collect();
        assert_eq!(ids[1][8..], [0, 0, 0, 0, 1, 2, 0, 1]);
    }
}
