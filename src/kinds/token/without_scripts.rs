//! The token lock without scripts: plain commands, and a release that compares and deletes, in a transaction or by a
//! command of the server.

use redis::{Cmd, cmd};

use crate::error::Stop;
use crate::kinds::prelude::*;
use crate::script::Pipeline;
use crate::script::reply::known;

/// The key of a lock and the value of one hold, for requests without scripts.
pub(super) struct Entry {
    pub(super) name: LockName,
    pub(super) owner: OwnerId,
    /// Whether a command of the server releases, in place of a transaction.
    pub(super) by_server: bool,
}

/// `GETDEL` is refused where the key is no token lock.
pub(crate) fn force_release(name: &LockName) -> Call<IfLock<bool>> {
    Call::plain(&["GETDEL"], name, |reply| match reply {
        Value::Nil => Some(Ok(false)),
        Value::BulkString(_) => Some(Ok(true)),
        _ => None,
    })
}

impl Entry {
    pub(super) fn acquired_for(self, lease: Lease) -> Call<Attempt> {
        Call::with_round_trips(&self.name.clone(), false, move |send, _| self.acquire(send, lease))
    }

    pub(super) fn released(self) -> Call<Released> {
        let name = self.name.clone();
        let run = move |send: &mut Pipeline<'_>, _| Ok(self.release(send)?.map(|()| NO_RECEIVERS));
        Call::with_round_trips(&name, false, run)
    }

    /// Builds a command with the key.
    pub(super) fn command(&self, word: &str) -> Cmd {
        command(word, self.name.key())
    }

    fn is(&self, value: &[u8]) -> bool {
        value == self.owner.as_str().as_bytes()
    }

    fn release(&self, send: &mut Pipeline<'_>) -> Result<Result<(), Loss>, Stop> {
        if self.by_server { self.release_by_the_server(send) } else { self.release_in_a_transaction(send) }
    }

    fn acquire(&self, send: &mut Pipeline<'_>, lease: Lease) -> Result<Attempt, Stop> {
        loop {
            let set = command("SET", (self.name.key(), self.owner.as_str(), "NX", "PX", lease.millis()));
            // The last two replies count only if `SET` set nothing.
            let replies = send(&[set, self.command("GET"), self.command("PTTL")])?;
            let [set, holder, ttl_ms] = &replies[..] else { return Err(Stop::NoReply) };
            Stop::at_a_refusal([set])?;
            let holder = match (set, holder) {
                (Value::Okay, _) => return Ok(Attempt::Granted { token: None }),
                (Value::Nil, Value::ServerError(_)) => return self.other_type(send, holder),
                (Value::Nil, Value::BulkString(holder)) => holder,
                // The key expired between the two commands.
                (Value::Nil, Value::Nil) => return Ok(Attempt::Busy { ttl_ms: 0 }),
                _ => return Err(Stop::NoReply),
            };
            if self.is(holder) {
                // An earlier copy of this request was granted and its reply was lost: its lease is too short by now.
                let _ = self.release(send)?;
                continue;
            }
            Stop::at_a_refusal([ttl_ms])?;
            let ttl_ms = known(int(ttl_ms))?;
            return Ok(Attempt::Busy { ttl_ms: if ttl_ms == -2 { 0 } else { ttl_ms } });
        }
    }

    /// The key is not a string: a lock of another kind, or no lock: then the refusal is the answer.
    fn other_type(&self, send: &mut Pipeline<'_>, refusal: &Value) -> Result<Attempt, Stop> {
        let kind = known(send(&[self.command("TYPE")])?.pop())?;
        if text(&kind).as_deref() != Some("hash") {
            Stop::at_a_refusal([refusal])?;
        }
        Ok(Attempt::OtherKind)
    }

    /// Deletes the key in a transaction if it has the value of this hold. Starts again after a change of the key.
    fn release_in_a_transaction(&self, send: &mut Pipeline<'_>) -> Result<Result<(), Loss>, Stop> {
        loop {
            // Without the right to `MULTI`, a `DEL` in the same write would run outside a transaction.
            let replies = send(&[self.command("WATCH"), self.command("GET"), cmd("MULTI")])?;
            Stop::at_a_refusal(&replies)?;
            let loss = match replies.get(1) {
                Some(Value::BulkString(value)) if self.is(value) => None,
                Some(Value::BulkString(_)) => Some(Loss::Taken),
                Some(Value::Nil) => Some(Loss::Gone),
                _ => return Err(Stop::NoReply),
            };
            if let Some(loss) = loss {
                Stop::at_a_refusal(&send(&[cmd("EXEC")])?)?;
                return Ok(Err(loss));
            }
            let replies = send(&[self.command("DEL"), cmd("EXEC")])?;
            Stop::at_a_refusal(&replies)?;
            let results = match replies.last() {
                Some(Value::Nil) => continue,
                results => known(results.and_then(list))?,
            };
            // At a member of a cluster that gets the slot at present, the results of `ASKING` are among them.
            return Ok(if known(results.iter().find_map(int))? == 1 { Ok(()) } else { Err(Loss::Gone) });
        }
    }

    /// Compares and deletes by the words of both servers, one of which is unknown; `GET` tells a loss.
    fn release_by_the_server(&self, send: &mut Pipeline<'_>) -> Result<Result<(), Loss>, Stop> {
        let (key, owner) = (self.name.key(), self.owner.as_str());
        let words = [command("DELEX", (key, "IFEQ", owner)), command("DELIFEQ", (key, owner)), self.command("GET")];
        let replies = send(&words)?;
        let [deleted @ .., value] = &replies[..] else { return Err(Stop::NoReply) };
        let is_known = |reply: &&Value| match reply {
            Value::ServerError(error) => !error.details().is_some_and(|text| text.starts_with("unknown command")),
            _ => true,
        };
        match deleted.iter().find(is_known) {
            Some(Value::Int(1)) => Ok(Ok(())),
            Some(deleted) => {
                // Of a key of another type `GET` says so; the words of `DELEX` are of its own.
                Stop::at_a_refusal([value, deleted])?;
                known(int(deleted))?;
                Ok(Err(if *value == Value::Nil { Loss::Gone } else { Loss::Taken }))
            }
            None => Err(Stop::Unsupported(
                "the server has neither DELEX (Redis 8.4) nor DELIFEQ (Valkey 9); release by script or by transaction",
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Releases on a server that answers each of the three commands so.
    fn release(replies: [&str; 3]) -> Result<Result<(), Loss>, Stop> {
        let entry = Entry { name: LockName::new("L").unwrap(), owner: OwnerId::encoded("mine"), by_server: true };
        let replies = replies.map(|reply| redis::parse_redis_value(format!("{reply}\r\n").as_bytes()).unwrap());
        entry.release(&mut |commands| {
            let words: Vec<_> = commands.iter().map(|command| command.get_packed_command()).collect();
            let words = words.iter().map(|words| String::from_utf8_lossy(words).replace("\r\n", " "));
            let expected = ["DELEX $1 L $4 IFEQ $4 mine ", "DELIFEQ $1 L $4 mine ", "GET $1 L "];
            assert!(words.zip(expected).all(|(words, expected)| words.ends_with(expected)));
            Ok(replies.to_vec())
        })
    }

    #[test]
    fn a_server_compares_and_deletes_by_its_own_word() {
        const UNKNOWN: &str = "-ERR unknown command 'X', with args beginning with: ";
        const WRONG: &str = "-WRONGTYPE Operation against a key";
        assert!(matches!(release([UNKNOWN, ":1", "$-1"]), Ok(Ok(()))));
        assert!(matches!(release([":1", UNKNOWN, "-NOPERM no right to GET"]), Ok(Ok(()))));
        assert!(matches!(release([":0", UNKNOWN, "$-1"]), Ok(Err(Loss::Gone))));
        assert!(matches!(release([UNKNOWN, ":0", "$6\r\ntheirs"]), Ok(Err(Loss::Taken))));
        assert!(matches!(release([UNKNOWN, UNKNOWN, "$4\r\nmine"]), Err(Stop::Unsupported(_))));
        let refused = |replies| match release(replies) {
            Err(Stop::Refused(refusal)) => refusal.word().to_owned(),
            other => panic!("{other:?}"),
        };
        assert_eq!(refused(["-ERR Key should be of string type", UNKNOWN, WRONG]), "WRONGTYPE");
        assert_eq!(refused(["-NOPERM no right to DELEX", UNKNOWN, "$4\r\nmine"]), "NOPERM");
    }
}
