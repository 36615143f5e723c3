//! Checks the rights for a release by transaction, once, before the first lock is taken.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use redis::Value;

use super::Pipeline;
use super::entry::{Entry, word};
use crate::error::{Refusal, Stop};

/// The result of the check. Clones share the result.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rehearsal(Arc<AtomicBool>);

impl Rehearsal {
    /// Checks that the user may run every command of a release.
    pub(super) fn run(&self, send: &mut Pipeline<'_>, entry: &Entry) -> Result<(), Stop> {
        if self.0.load(Ordering::Relaxed) {
            return Ok(());
        }
        let questions = [entry.command("WATCH"), entry.command("GET"), entry.command("PTTL"), word("MULTI")];
        let replies = send(&questions)?;
        let mut refusal = replies.iter().find_map(refusal_of);
        if refusal.is_none() {
            // `DEL` is sent without arguments, so the server discards the transaction and deletes nothing. The reply
            // to `MULTI` was checked before: outside a transaction `DEL` would run.
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
                // A transaction may be open on the connection, and the user may have no right to end it.
                send(&[word("QUIT")])?;
                Err(Stop::Refused(refusal))
            }
        }
    }
}

/// Returns the refusal of a reply. A key of another type does not count here; the acquire reports that.
fn refusal_of(reply: &Value) -> Option<Refusal> {
    match reply {
        Value::ServerError(error) if error.code() != "WRONGTYPE" => Some(Refusal::new(error)),
        _ => None,
    }
}

/// A discarded transaction replies "because of previous errors"; a refused `EXEC` names another reason.
fn refusal_of_exec(reply: &Value) -> Option<Refusal> {
    match reply {
        Value::ServerError(error) if error.code() == "EXECABORT" => {
            let (_, why) = error.details()?.split_once("because of: ")?;
            Some(Refusal::from_text(why.trim_start_matches('-')))
        }
        _ => refusal_of(reply),
    }
}
