//! The sides of the read-write lock: one hash for many readers or one writer, and a key for each read hold.

use super::{AcquireArgs, Kind, Queueing, prelude::*};
use crate::error::{Refusal, Stop};
use crate::script::{pipelined, query};

static ACQUIRE_READ: Script = lua!("read_write/acquire_read.lua");
static ACQUIRE_WRITE: Script = lua!("read_write/acquire_write.lua");
static REENTER: Script = lua!("read_write/reenter.lua");
static RELEASE: Script = lua!("read_write/release.lua");
static RENEW: Script = lua!("read_write/renew.lua");
static LOOK: Script = lua!("read_write/look.lua");
static FORCE_RELEASE: Script = lua!("read_write/force_release.lua");

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

    fn channel<'a>(&self, name: &'a LockName, _: &'a OwnerId) -> Joined<'a> {
        name.read_write_channel()
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        let AcquireArgs { name, owner, lease, .. } = *args;
        match self.side {
            Side::Exclusive => {
                ACQUIRE_WRITE.call(name, &[name.key()], Attempt::read).arg(lease.millis()).arg(format!("{owner}:write"))
            }
            Side::Shared => owner.with_text(|owner| {
                let keys = [name.as_key(), name.read_hold(owner, "1")];
                ACQUIRE_READ.call(name, &keys, Attempt::read).arg(lease.millis()).arg(owner)
            }),
        }
    }

    fn reenter(&self, name: &LockName, owner: &OwnerId, raise: Raise, counts: Counts) -> Call<Result<(), Loss>> {
        let holds = read_holds(name, owner, counts.shared);
        let call = REENTER.call(name, &keys([name.key()], &holds), read_outcome).arg(raise.lease.millis()).arg(owner);
        call.arg(counts.exclusive).arg(counts.shared).arg(raise.endless.millis())
    }

    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
        if self.on_cluster {
            return release_on_cluster(name, owner, remaining);
        }
        release(name, owner, remaining, None).map(|outcome| outcome.unwrap_or(Err(Loss::Taken)))
    }

    fn renew(&self, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
        let holds: Vec<_> = locks.iter().flat_map(|lock| read_holds(&lock.name, &lock.owner, lock.reads)).collect();
        let keys = keys(locks.iter().map(|lock| lock.name.key()), &holds);
        let call = RENEW.call(&locks[0].name, &keys, RenewalAnswer::read_all);
        locks.iter().fold(call, |call, lock| {
            let Raise { lease, endless } = lock.raise;
            call.arg(&lock.owner).arg(lease.millis()).arg(endless.millis()).arg(lock.reads)
        })
    }

    fn look(&self, claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
        // One script for each hold: their locks may be in any slots.
        let look = |Claim { name, owner, left }: &Claim| {
            let call = LOOK.call(name, &[name.key()], RenewalAnswer::read).arg(owner).arg(left.millis());
            owner.with_text(|owner| call.arg(name.read_hold(owner, "1")))
        };
        let calls: Vec<_> = claims.iter().map(look).collect();
        Call::with_round_trips(&claims[0].name, move |send, pub_sub| {
            let answers = pipelined(&calls, pub_sub, send)?;
            Ok(answers.into_iter().map(|answer| answer.unwrap_or_else(RenewalAnswer::of_refusal)).collect())
        })
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        let (mode, message) = match self.side {
            Side::Exclusive => ("write", "1"),
            Side::Shared => ("read", "0"),
        };
        FORCE_RELEASE.call(name, &[name.key()], read_forced).arg(mode).publishing(name.read_write_channel(), message)
    }

    fn holder(&self, name: &LockName) -> Call<IfLock<Option<(String, u64)>>> {
        match self.side {
            Side::Exclusive => query::writer(name),
            Side::Shared => query::reader(name),
        }
    }
}

/// Releases one hold count on a cluster. While the slot of the lock migrates, the keys of read holds may be on another
/// server. The script would take such a hold for expired, so the request names every key, and Redis refuses the
/// request.
fn release_on_cluster(name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
    let (name, owner) = (name.clone(), owner.clone());
    Call::with_round_trips(&name.clone(), move |send, pub_sub| {
        let mut others = vec![];
        for _ in 0..MOST_QUESTIONS {
            match release(&name, &owner, remaining, Some(&others)).run(send, pub_sub)? {
                Ok(released) => return Ok(released),
                Err(Readers(readers)) => {
                    let prefix = name.read_holds().text();
                    let keys_of = |(reader, count): &(String, usize)| {
                        let prefix = format!("{prefix}{reader}:rwlock_timeout:");
                        (1..=*count).map(move |number| format!("{prefix}{number}"))
                    };
                    // Known readers stay known: a reader that comes meanwhile is one more.
                    others.extend(readers.iter().flat_map(keys_of));
                }
            }
        }
        Err(Stop::Refused(Refusal::from_text("TRYAGAIN the readers of the lock change all the time")))
    })
}

/// The readers whose read holds a release must know.
struct Readers(Vec<(String, usize)>);

/// Releases one hold count. `others` are the keys of read holds of other owners, where the script may look at no other
/// keys.
fn release(
    name: &LockName,
    owner: &OwnerId,
    remaining: Option<(Counts, Lease)>,
    others: Option<&[String]>,
) -> Call<Result<Released, Readers>> {
    let (counts, lease_ms) = remaining.map_or((Counts::default(), 0), |(counts, lease)| (counts, lease.millis()));
    let mut holds = read_holds(name, owner, counts.shared);
    holds.extend(others.unwrap_or_default().iter().cloned());
    let call = RELEASE.call(name, &keys([name.key()], &holds), read_release_or_readers).arg(owner);
    let call = call.arg(counts.exclusive).arg(counts.shared).arg(lease_ms);
    let call = call.arg(name.read_holds()).arg(u8::from(others.is_some()));
    call.arg(name.read_write_channel()).publish_command()
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

/// The keys of the read holds of one owner.
fn read_holds(name: &LockName, owner: &OwnerId, count: usize) -> Vec<String> {
    let hold = |owner: &str, number| name.read_hold(owner, itoa::Buffer::new().format(number)).text();
    owner.with_text(|owner| (1..=count).map(|number| hold(owner, number)).collect())
}

fn keys<'a>(locks: impl IntoIterator<Item = &'a [u8]>, holds: &'a [String]) -> Vec<&'a [u8]> {
    locks.into_iter().chain(holds.iter().map(String::as_bytes)).collect()
}

/// So often a release asks again because of new readers, before it rests.
const MOST_QUESTIONS: usize = 5;

#[cfg(test)]
mod tests;
