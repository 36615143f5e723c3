//! Asks for several locks at once: one request for the locks of a bundle, and all requests side by side.

use std::sync::Arc;

use crate::engine::acquire::acquisition::Acquisition;
use crate::engine::caller::Caller;
use crate::engine::parts::Engine;
use crate::engine::request::Grant;
use crate::engine::sender::exactly_once::{self, SendResult};
use crate::engine::several::in_shares;
use crate::error::{Error, Result};
use crate::script::bundle::{BundleAttempt, PartState};
use crate::script::{Attempt, Call};
use crate::state::exchange::{Bounds, Failed, InDoubt};
use crate::state::wait_loop::TakeOutcome;
use crate::transport::Confirmation;

/// The reply about one lock.
pub(crate) enum Reply {
    Granted(Grant),
    Busy(std::time::Duration),
    /// The lock is free, but was not taken: another lock of its bundle was busy.
    Passed,
}

/// The reply about one lock, and the server of the reply.
pub(crate) struct Heard {
    pub(crate) reply: Result<Reply>,
    /// The run of the server process, where it was asked for: two addresses with the same run are one server.
    pub(crate) run_id: Option<Arc<str>>,
}

/// Asks once for every lock, each within its bounds. Returns the replies in order; a lock without a usable reply is
/// cleared away in the background.
pub(crate) fn ask_at_once(
    asking: Vec<Acquisition<'_>>,
    caller: &Caller<'_>,
    limit: impl Fn(&Engine, Bounds) -> Bounds,
) -> Vec<Heard> {
    let asking = asking.into_iter().enumerate().map(|(place, asker)| (asker.bundle(), (place, asker)));
    let mut shares = in_shares(asking);
    let requests: Vec<(Call<BundleAttempt>, Bounds)> = shares.iter_mut().map(|share| request(share)).collect();
    let sends = shares.iter().zip(&requests).map(|(share, (call, bounds))| {
        let engine = share[0].1.request.engine;
        engine.sender.outgoing(InDoubt::default(), call, limit(engine, *bounds))
    });
    let outcomes = exactly_once::send_all(sends.collect(), Some(caller));
    let mut all = vec![];
    for (share, outcome) in shares.into_iter().zip(&outcomes) {
        let answer = outcome.as_ref().ok();
        for (index, (place, acquisition)) in share.into_iter().enumerate() {
            let (request, started) = (acquisition.request, acquisition.waiting.started);
            let reply = hear(acquisition, outcome, index);
            let run_id = answer.and_then(|answer| answer.run_id.clone());
            all.push((place, request, started, answer, Heard { reply, run_id }));
        }
    }
    // The clients know all grants before an observer hears anything, because the observer may close a client, and a
    // grant after the close could not be given back.
    for (_, request, started, answer, heard) in &all {
        let Some(answer) = answer.filter(|answer| answer.value.is_granted()) else { continue };
        let grant = match &heard.reply {
            Ok(Reply::Granted((hold, _))) => Some((&**hold, *started, false)),
            _ => None,
        };
        let missing = request.engine.sender.judge(request.name, request.needs, answer.copies.as_ref(), "");
        request.engine.exclude_older_holds(request, answer.sent);
        request.engine.tell_grant(request, missing.unwrap_or_default(), grant);
    }
    all.sort_by_key(|(place, ..)| *place);
    all.into_iter().map(|(.., heard)| heard).collect()
}

/// The request of locks that share one, confirmed as all of them need.
fn request(share: &mut [(usize, Acquisition<'_>)]) -> (Call<BundleAttempt>, Bounds) {
    let confirmation = share.iter().filter_map(|(_, asker)| asker.confirmation());
    let confirmation = confirmation.reduce(|one, other| Confirmation { needs: one.needs.and(other.needs), ..one });
    let (call, bounds) = match share {
        [(_, one)] => {
            let (call, bounds) = one.ask();
            (call.map(BundleAttempt::of_one), bounds)
        }
        all => {
            let bounds: Vec<Bounds> = all.iter_mut().map(|(_, asker)| asker.ask_in_bundle()).collect();
            let parts: Vec<_> = all.iter().map(|(_, asker)| asker.args()).collect();
            (all[0].1.request.kind.acquire_all(&parts), bounds[0])
        }
    };
    (call.confirmed(confirmation, BundleAttempt::is_granted), bounds)
}

/// Gives a lock its part of the outcome of a request.
fn hear(mut acquisition: Acquisition<'_>, outcome: &SendResult<BundleAttempt>, index: usize) -> Result<Reply> {
    let mut is_free = false;
    let own = match outcome {
        Err(failed) => Err(failed.clone()),
        Ok(answer) => match &answer.value {
            BundleAttempt::Granted { token } => Ok(answer.with(Attempt::Granted { token: *token })),
            BundleAttempt::Refused(states) => match states.get(index) {
                Some(PartState::Told(attempt)) => Ok(answer.with(*attempt)),
                Some(PartState::Unreadable(refusal)) => {
                    let error = Error::refused(refusal.clone().at(acquisition.waiting.node.server.label()));
                    let in_doubt = InDoubt { fenceable: vec![], unfenceable: answer.unfenceable };
                    Err(Failed { error, in_doubt: Some(in_doubt).filter(|_| answer.unfenceable) })
                }
                state @ (Some(PartState::Free | PartState::Ours) | None) => {
                    if state == Some(&PartState::Ours) {
                        // An earlier copy took the lock, which the caller cannot use without the others.
                        acquisition.in_doubt.get_or_insert_default();
                    }
                    is_free = true;
                    Ok(answer.with(Attempt::Busy { ttl_ms: 0 }))
                }
            },
        },
    };
    match acquisition.hear(own)? {
        TakeOutcome::Taken(grant) => Ok(Reply::Granted(grant)),
        TakeOutcome::Busy(_) if is_free => Ok(Reply::Passed),
        TakeOutcome::Busy(free_in) => Ok(Reply::Busy(free_in)),
    }
}
