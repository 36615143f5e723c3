//! The token lock without scripts: plain commands, and a release that compares and deletes.

use redis::{Cmd, ServerError, Value};

use super::Entry;
use super::compare_and_delete::CompareAndDelete;
use crate::error::{Loss, Stop};
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::script::answer::without_receivers;
use crate::script::reply::{int, known, list, refused};
use crate::script::{Attempt, Call, IfLock, Pipeline, Released};
use crate::time::Lease;

/// The form of a release without scripts.
#[derive(Clone, Debug)]
pub(crate) enum Opening {
    Transaction,
    Command(CompareAndDelete),
}

pub(crate) fn acquire(name: &LockName, owner: &OwnerId, lease: Lease, opening: Opening) -> Call<Attempt> {
    let entry = Entry { name: name.clone(), owner: owner.clone() };
    Call::with_round_trips(name, move |send| entry.acquire(send, lease, &opening))
}

pub(crate) fn release(name: &LockName, owner: &OwnerId, opening: Opening) -> Call<Released> {
    let entry = Entry { name: name.clone(), owner: owner.clone() };
    Call::with_round_trips(name, move |send| Ok(without_receivers(opening.release(send, &entry)?)))
}

/// `GETDEL` is refused where the key is no token lock.
pub(crate) fn force_release(name: &LockName) -> Call<IfLock<bool>> {
    Call::plain(&["GETDEL"], name, |reply| match reply {
        Value::Nil => Some(Ok(false)),
        Value::BulkString(_) => Some(Ok(true)),
        _ => None,
    })
}

impl Opening {
    fn release(&self, send: &mut Pipeline<'_>, entry: &Entry) -> Result<Result<(), Loss>, Stop> {
        match self {
            Self::Transaction => entry.release(send),
            Self::Command(own) => own.run(send, entry),
        }
    }
}

impl Entry {
    fn is(&self, value: &[u8]) -> bool {
        value == self.owner.as_str().as_bytes()
    }

    fn acquire(&self, send: &mut Pipeline<'_>, lease: Lease, opening: &Opening) -> Result<Attempt, Stop> {
        loop {
            let mut set = self.command("SET");
            set.arg(self.owner.as_str()).arg("NX").arg("PX").arg(lease.millis());
            // The last two replies count only if `SET` set nothing.
            let replies = send(&[set, self.command("GET"), self.command("PTTL")])?;
            let [set, holder, ttl_ms] = &replies[..] else { return Err(Stop::NoReply) };
            let holder = match (set, holder) {
                (Value::Okay, _) => return Ok(Attempt::Granted { token: None }),
                (Value::ServerError(error), _) => return Err(refused(error)),
                (Value::Nil, Value::ServerError(error)) => return self.other_type(send, error),
                (Value::Nil, Value::BulkString(holder)) => holder,
                // The key expired between the two commands.
                (Value::Nil, Value::Nil) => return Ok(Attempt::Busy { ttl_ms: 0 }),
                _ => return Err(Stop::NoReply),
            };
            if self.is(holder) {
                // An earlier copy of this request was granted and its reply was lost: its lease is too short by now.
                let _ = opening.release(send, self)?;
                continue;
            }
            let ttl_ms = match ttl_ms {
                Value::ServerError(error) => return Err(refused(error)),
                ttl_ms => known(int(ttl_ms))?,
            };
            return Ok(Attempt::Busy { ttl_ms: if ttl_ms == -2 { 0 } else { ttl_ms } });
        }
    }

    /// The key is not a string: a lock of another kind, or no lock.
    fn other_type(&self, send: &mut Pipeline<'_>, error: &ServerError) -> Result<Attempt, Stop> {
        match send(&[self.command("TYPE")])?.first() {
            Some(Value::SimpleString(kind)) if kind == "hash" => Ok(Attempt::OtherKind),
            Some(_) => Err(refused(error)),
            None => Err(Stop::NoReply),
        }
    }

    /// Deletes the key in a transaction if it has the value of this hold. Starts again after a change of the key.
    fn release(&self, send: &mut Pipeline<'_>) -> Result<Result<(), Loss>, Stop> {
        loop {
            // Without the right to `MULTI`, a `DEL` in the same write would run outside a transaction.
            let replies = send(&[self.command("WATCH"), self.command("GET"), word("MULTI")])?;
            check_replies(&replies)?;
            let loss = match replies.get(1) {
                Some(Value::BulkString(value)) if self.is(value) => None,
                Some(Value::BulkString(_)) => Some(Loss::Taken),
                Some(Value::Nil) => Some(Loss::Gone),
                _ => return Err(Stop::NoReply),
            };
            if let Some(loss) = loss {
                check_replies(&send(&[word("EXEC")])?)?;
                return Ok(Err(loss));
            }
            let replies = send(&[self.command("DEL"), word("EXEC")])?;
            check_replies(&replies)?;
            let results = match replies.last() {
                Some(Value::Nil) => continue,
                results => known(results.and_then(list))?,
            };
            // At a member of a cluster that gets the slot at present, the results of `ASKING` are among them.
            return Ok(if known(results.iter().find_map(int))? == 1 { Ok(()) } else { Err(Loss::Gone) });
        }
    }
}

/// A command without arguments.
fn word(word: &str) -> Cmd {
    let mut command = Cmd::new();
    command.arg(word);
    command
}

/// Fails with the first refusal among the replies.
fn check_replies(replies: &[Value]) -> Result<(), Stop> {
    replies.iter().try_for_each(|reply| match reply {
        Value::ServerError(error) => Err(refused(error)),
        _ => Ok(()),
    })
}
