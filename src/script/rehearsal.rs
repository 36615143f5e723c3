//! Whether this user may do what a release by a transaction needs: tried once, before the first lock is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::Value;

use super::Pipeline;
use super::transaction::{Entry, word};
use crate::error::{Refusal, Stop};

/// Remembers for all its copies that the rehearsal went well.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rehearsal(Arc<AtomicBool>);

impl Rehearsal {
    /// Makes sure that a release will not be refused for want of a right.
    pub(super) fn run(&self, send: &mut Pipeline<'_>, entry: &Entry) -> Result<(), Stop> {
        if self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        let questions = [entry.command("WATCH"), entry.command("GET"), entry.command("PTTL"), word("MULTI")];
        let replies = send(&questions)?;
        let mut refusal = replies.iter().find_map(refusal_of);
        if refusal.is_none() {
            // A command without its arguments spoils the transaction, so nothing is deleted by it. `MULTI` was
            // answered before: without it the key would be.
            let replies = send(&[entry.command("DEL"), word("GET"), word("EXEC")])?;
            let [delete, _, exec] = &replies[..] else { return Err(Stop::NoReply) };
            refusal = refusal_of(delete).or_else(|| refusal_of_exec(exec));
        }
        match refusal {
            None => {
                self.0.store(true, Ordering::Relaxed);
                Ok(())
            }
            Some(refusal) => {
                // The connection may be in a transaction that nobody can end.
                send(&[word("QUIT")])?;
                Err(Stop::Refused(refusal))
            }
        }
    }
}

/// What was refused; that the key is something else is for the acquire to say.
fn refusal_of(reply: &Value) -> Option<Refusal> {
    match reply {
        Value::ServerError(error) if error.code() != "WRONGTYPE" => Some(Refusal::new(error)),
        _ => None,
    }
}

/// A spoilt transaction is discarded "because of previous errors"; a refused `EXEC` says what else it was.
fn refusal_of_exec(reply: &Value) -> Option<Refusal> {
    match reply {
        Value::ServerError(error) if error.code() == "EXECABORT" => {
            let (_, why) = error.details()?.split_once("because of: ")?;
            Some(Refusal::from_text(why.trim_start_matches('-')))
        }
        _ => refusal_of(reply),
    }
}
