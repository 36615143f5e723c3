//! The token lock without scripts: plain commands, and a release that compares and deletes, in a transaction or by a
//! command of the server.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::{Cmd, cmd};

use crate::error::{Refusal, Stop};
use crate::kinds::prelude::*;
use crate::reply::known;
use crate::script::Pipeline;

/// The key of a lock and the value of one hold, for requests without scripts.
pub(super) struct TokenValue {
    pub(super) name: LockName,
    pub(super) owner: OwnerId,
    /// The command of the server that releases; `None` for a transaction.
    pub(super) own: Option<CompareAndDelete>,
}

/// `GETDEL` is refused where the key is no token lock.
pub(crate) fn force_release(name: &LockName) -> Call<IfLock<bool>> {
    Call::plain("GETDEL", name, |reply| match reply {
        Value::Nil => Some(Ok(false)),
        Value::BulkString(_) => Some(Ok(true)),
        _ => None,
    })
}

impl TokenValue {
    /// Builds a command with the key.
    pub(super) fn command(&self, word: &str) -> Cmd {
        command(word, self.name.key())
    }

    fn is(&self, value: &[u8]) -> bool {
        value == self.owner.as_str().as_bytes()
    }

    pub(super) fn release(&self, send: &mut Pipeline<'_>) -> Result<Result<(), Loss>, Stop> {
        match &self.own {
            Some(own) => own.run(send, self),
            None => self.release_in_a_transaction(send),
        }
    }

    pub(super) fn acquire(&self, send: &mut Pipeline<'_>, lease: Lease) -> Result<Attempt, Stop> {
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
}

/// Whether the server has `DELIFEQ` (Valkey since 9.0); otherwise `DELEX` (Redis since 8.4) is tried first. Clones
/// share what was found.
#[derive(Clone, Debug, Default)]
pub(crate) struct CompareAndDelete(Arc<AtomicBool>);

impl CompareAndDelete {
    /// Deletes the key if it holds the value of this hold.
    pub(super) fn run(&self, send: &mut Pipeline<'_>, entry: &TokenValue) -> Result<Result<(), Loss>, Stop> {
        if self.delete(send, entry)? {
            return Ok(Ok(()));
        }
        let exists = known(send(&[entry.command("EXISTS")])?.first().and_then(int))? == 1;
        Ok(Err(if exists { Loss::Taken } else { Loss::Gone }))
    }

    fn delete(&self, send: &mut Pipeline<'_>, entry: &TokenValue) -> Result<bool, Stop> {
        let (key, owner) = (entry.name.key(), entry.owner.as_str());
        let found = self.0.load(Ordering::Relaxed);
        // Another server of this client may have the other command.
        for is_delifeq in [found, !found] {
            let delex = || command("DELEX", (key, "IFEQ", owner));
            let command = if is_delifeq { command("DELIFEQ", (key, owner)) } else { delex() };
            let reply = known(send(&[command])?.pop())?;
            let details = if let Value::ServerError(error) = &reply { error.details() } else { None }.unwrap_or("");
            if details.starts_with("unknown command") {
                continue;
            }
            self.0.store(is_delifeq, Ordering::Relaxed);
            // `DELEX` refuses a key of another type with this text, `DELIFEQ` with `WRONGTYPE`.
            if details.starts_with("Key should be of string type") {
                return Err(Stop::Refused(Refusal::from_text("WRONGTYPE the key is no string")));
            }
            Stop::at_a_refusal([&reply])?;
            return Ok(known(int(&reply))? == 1);
        }
        Err(Stop::Unsupported(
            "the server has neither DELEX (Redis 8.4) nor DELIFEQ (Valkey 9); release by script or by transaction",
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Releases on a server that has the given command or none. Returns the requests and the outcome.
    fn release(
        own: &CompareAndDelete,
        has: Option<&str>,
        deleted: i64,
        exists: i64,
    ) -> (Vec<String>, Result<Result<(), Loss>, Stop>) {
        let entry = TokenValue { name: LockName::new("L").unwrap(), owner: OwnerId::encoded("mine"), own: None };
        let mut asked = vec![];
        let kept = own.run(
            &mut |commands| {
                let replies = commands.iter().map(|command| {
                    let words: Vec<_> = command.args_iter().map(in_text).collect();
                    asked.push(words.join(" "));
                    match words[0].as_str() {
                        "EXISTS" => Value::Int(exists),
                        word if Some(word) == has => Value::Int(deleted),
                        _ => redis::parse_redis_value(b"-ERR unknown command 'X', with args beginning with: \r\n")
                            .unwrap(),
                    }
                });
                Ok(replies.collect())
            },
            &entry,
        );
        (asked, kept)
    }

    fn in_text(argument: redis::Arg<&[u8]>) -> String {
        match argument {
            redis::Arg::Simple(bytes) => String::from_utf8(bytes.to_vec()).unwrap(),
            _ => panic!("a plain argument"),
        }
    }

    #[test]
    fn the_word_of_the_server_is_found_once() {
        let own = CompareAndDelete::default();
        let (asked, kept) = release(&own, Some("DELIFEQ"), 1, 0);
        assert_eq!(asked, ["DELEX L IFEQ mine", "DELIFEQ L mine"]);
        assert!(matches!(kept, Ok(Ok(()))), "{kept:?}");
        assert_eq!(release(&own.clone(), Some("DELIFEQ"), 1, 0).0, ["DELIFEQ L mine"]);
        assert_eq!(release(&own, Some("DELEX"), 1, 0).0, ["DELIFEQ L mine", "DELEX L IFEQ mine"]);
        assert_eq!(release(&own, Some("DELEX"), 1, 0).0, ["DELEX L IFEQ mine"]);
    }

    #[test]
    fn an_undeleted_key_is_gone_or_taken() {
        let check = |exists, loss| {
            let (asked, kept) = release(&CompareAndDelete::default(), Some("DELEX"), 0, exists);
            assert_eq!(asked, ["DELEX L IFEQ mine", "EXISTS L"]);
            assert!(matches!(kept, Ok(Err(lost)) if lost == loss), "{kept:?}");
        };
        check(0, Loss::Gone);
        check(1, Loss::Taken);
    }

    #[test]
    fn a_server_with_neither_word_is_told_apart() {
        let (_, kept) = release(&CompareAndDelete::default(), None, 1, 1);
        assert!(matches!(kept, Err(Stop::Unsupported(_))), "{kept:?}");
    }
}
