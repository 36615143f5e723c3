//! The scripts of the read-write lock: one hash for both sides, and a key for each read hold.

use redis::Value;

use super::answer::{
    Attempt, Counts, IfLock, Publication, Raise, Released, Renewal, RenewalAnswer, read_forced, read_outcome,
    read_release,
};
use super::look::{self, Claim};
use super::reply::{int, list};
use super::{Call, Script, lua};
use crate::error::{Loss, Refusal, Stop};
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

static ACQUIRE_READ: Script = lua!("read_write/acquire_read.lua");
static ACQUIRE_WRITE: Script = lua!("read_write/acquire_write.lua");
static REENTER: Script = lua!("read_write/reenter.lua");
static RELEASE: Script = lua!("read_write/release.lua");
static RENEW: Script = lua!("read_write/renew.lua");
static FORCE_RELEASE: Script = lua!("read_write/force_release.lua");
static IS_LOCKED: Script = lua!("read_write/is_locked.lua");

pub(crate) fn acquire_read(name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Attempt> {
    let first_hold = format!("{}1", name.read_holds_of(owner));
    ACQUIRE_READ.call(name, &[name.key(), first_hold.as_bytes()], Attempt::read).arg(lease.millis()).arg(owner.as_str())
}

pub(crate) fn acquire_write(name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Attempt> {
    ACQUIRE_WRITE.call(name, &[name.key()], Attempt::read).arg(lease.millis()).arg(format!("{owner}:write"))
}

pub(crate) fn reenter(name: &LockName, owner: &OwnerId, raise: Raise, counts: Counts) -> Call<Result<(), Loss>> {
    let holds = read_holds(name, owner, counts.shared);
    REENTER
        .call(name, &keys([name.key()], &holds), read_outcome)
        .arg(raise.lease.millis())
        .arg(owner.as_str())
        .arg(counts.exclusive)
        .arg(counts.shared)
        .arg(raise.endless.millis())
}

/// Releases one hold count. `remaining` are the hold counts that stay, with the lease for them.
pub(crate) fn release(
    name: &LockName,
    owner: &OwnerId,
    remaining: Option<(Counts, Lease)>,
    channel: &str,
) -> Call<Released> {
    release_with(name, owner, remaining, channel, None).map(|outcome| outcome.unwrap_or(Err(Loss::Taken)))
}

/// The same on a cluster. While the slot of the lock migrates, the keys of read holds may be on another server. The
/// script would take such a hold for expired, so the request names every key, and Redis refuses the request.
pub(crate) fn release_on_cluster(
    name: &LockName,
    owner: &OwnerId,
    remaining: Option<(Counts, Lease)>,
    channel: &str,
) -> Call<Released> {
    let (name, owner, channel) = (name.clone(), owner.clone(), channel.to_owned());
    Call::with_publishing_round_trips(&name.clone(), move |send, pub_sub| {
        let mut others = vec![];
        for _ in 0..MOST_QUESTIONS {
            match release_with(&name, &owner, remaining, &channel, Some(&others)).run(send, pub_sub)? {
                Ok(released) => return Ok(released),
                Err(Readers(readers)) => {
                    let prefix = name.read_holds();
                    let keys_of = |(reader, count): &(String, usize)| {
                        let prefix = format!("{prefix}{reader}:rwlock_timeout:");
                        (1..=*count).map(move |number| format!("{prefix}{number}"))
                    };
                    others = readers.iter().flat_map(keys_of).collect();
                }
            }
        }
        Err(Stop::Refused(Refusal::from_text("TRYAGAIN the readers of the lock change all the time")))
    })
}

/// The readers whose read holds a release must know.
#[derive(Debug)]
struct Readers(Vec<(String, usize)>);

/// `others` are the keys of read holds of other owners, where the script may look at no other keys.
fn release_with(
    name: &LockName,
    owner: &OwnerId,
    remaining: Option<(Counts, Lease)>,
    channel: &str,
    others: Option<&[String]>,
) -> Call<Result<Released, Readers>> {
    let (counts, lease_ms) = remaining.map_or((Counts::default(), 0), |(counts, lease)| (counts, lease.millis()));
    let mut holds = read_holds(name, owner, counts.shared);
    holds.extend(others.unwrap_or_default().iter().cloned());
    RELEASE
        .call(name, &keys([name.key()], &holds), read_release_or_readers)
        .arg(owner.as_str())
        .arg(counts.exclusive)
        .arg(counts.shared)
        .arg(lease_ms)
        .arg(name.read_holds())
        .arg(u8::from(others.is_some()))
        .arg(channel)
        .publish_command()
}

fn read_release_or_readers(reply: &Value) -> Option<Result<Released, Readers>> {
    let [Value::Int(3), readers @ ..] = list(reply)? else { return read_release(reply).map(Ok) };
    let reader = |words: &[Value]| match words {
        [Value::BulkString(owner), count] => {
            Some((String::from_utf8(owner.clone()).ok()?, usize::try_from(int(count)?).ok()?))
        }
        _ => None,
    };
    Some(Err(Readers(readers.chunks(2).map(reader).collect::<Option<_>>()?)))
}

/// Renews the given holds on one server. `locks` must not be empty.
pub(crate) fn renew(locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
    let holds: Vec<_> = locks.iter().flat_map(|lock| read_holds(&lock.name, &lock.owner, lock.reads)).collect();
    let call =
        RENEW.call(&locks[0].name, &keys(locks.iter().map(|lock| lock.name.key()), &holds), RenewalAnswer::read_all);
    locks.iter().fold(call, |call, lock| {
        let Raise { lease, endless } = lock.raise;
        call.arg(lock.owner.as_str()).arg(lease.millis()).arg(endless.millis()).arg(lock.reads)
    })
}

/// The keys of the read holds of one owner.
fn read_holds(name: &LockName, owner: &OwnerId, count: usize) -> Vec<String> {
    let prefix = name.read_holds_of(owner);
    (1..=count).map(|number| format!("{prefix}{number}")).collect()
}

fn keys<'a>(locks: impl IntoIterator<Item = &'a [u8]>, holds: &'a [String]) -> Vec<&'a [u8]> {
    locks.into_iter().chain(holds.iter().map(String::as_bytes)).collect()
}

/// Checks whether these owners still hold either side. `claims` must not be empty.
pub(crate) fn look(claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
    // The write side first: a hold may go on as a reader between the two commands, and never becomes a writer again.
    look::fields(claims, |owner| vec![format!("{owner}:write"), owner.to_string()])
}

/// Releases the side `mode` of whatever owner.
pub(crate) fn force_release(name: &LockName, mode: &str, publication: Publication<'_>) -> Call<IfLock<bool>> {
    FORCE_RELEASE.call(name, &[name.key()], read_forced).arg(mode).publishing(publication)
}

pub(crate) fn is_locked(name: &LockName, mode: &str) -> Call<bool> {
    IS_LOCKED.call(name, &[name.key()], |reply| Some(int(reply)? == 1)).arg(mode)
}

/// So often a release asks again because of new readers, before it rests.
const MOST_QUESTIONS: usize = 5;

#[cfg(test)]
mod tests;
