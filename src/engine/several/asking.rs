//! Asks for several locks at once: one request for the locks of a bundle, and all requests side by side.

use std::sync::Arc;

use crate::engine::acquire::acquisition::Acquisition;
use crate::engine::caller::Caller;
use crate::engine::parts::{Bundle, Engine};
use crate::engine::request::{AcquireRequest, Grant};
use crate::engine::sender::exactly_once::{self, Answer};
use crate::error::{Error, Result};
use crate::script::bundle::{BundleAttempt, MOST_PARTS, PartState};
use crate::script::{Attempt, Call};
use crate::state::exchange::{Bounds, Failed, InDoubt};
use crate::state::wait_loop::TakeOutcome;
use crate::time::Instant;
use crate::transport::Confirmation;

/// The reply about one lock.
#[derive(Debug)]
pub(crate) enum Reply {
    Granted(Grant),
    Busy(std::time::Duration),
    /// The lock is free, but was not taken: another lock of its bundle was busy.
    Passed,
}

/// The reply about one lock, and the server that gave it.
#[derive(Debug)]
pub(crate) struct Heard {
    pub(crate) reply: Result<Reply>,
    /// The run of the server process, where it was asked for: two addresses with the same run are one server.
    pub(crate) run_id: Option<Arc<str>>,
}

/// The reply to one request.
enum Answered {
    One(Attempt),
    Bundle(BundleAttempt),
}

/// Locks that share a request, by their places in the list.
struct BundleShare {
    /// What the locks have in common; `None` for a request of its own.
    bundle: Option<Bundle>,
    places: Vec<usize>,
}

/// Asks once for every lock, each within its bounds. Returns the replies in order; a lock without a usable reply is
/// cleared away in the background.
pub(crate) fn ask_at_once(
    mut asking: Vec<Acquisition<'_>>,
    caller: &Caller<'_>,
    limit: impl Fn(&Engine, Bounds) -> Bounds,
) -> Vec<Heard> {
    let shares = shares(&asking);
    let requests: Vec<(Call<Answered>, Bounds)> = shares
        .iter()
        .map(|share| match &share.places[..] {
            places @ [first, _, ..] => {
                let bounds: Vec<Bounds> = places.iter().map(|place| asking[*place].ask_in_bundle()).collect();
                let parts: Vec<_> = places.iter().map(|place| asking[*place].args()).collect();
                let call = asking[*first].request().kind.acquire_all(&parts).map(Answered::Bundle);
                (call.confirmed(confirmation(&asking, places), Answered::is_granted), bounds[0])
            }
            places => {
                let (call, bounds) = asking[places[0]].ask();
                let confirmation = asking[places[0]].confirmation();
                (call.map(Answered::One).confirmed(confirmation, Answered::is_granted), bounds)
            }
        })
        .collect();
    let sends = shares.iter().zip(&requests).map(|(share, (call, bounds))| {
        let engine = asking[share.places[0]].request().engine;
        engine.sender.outgoing(InDoubt::default(), call, limit(engine, *bounds))
    });
    let outcomes = exactly_once::send_all(sends.collect(), Some(caller));
    let askers: Vec<_> = asking.iter().map(|asker| (asker.request(), asker.started())).collect();
    let mut replies: Vec<Option<Heard>> = asking.iter().map(|_| None).collect();
    let mut asking: Vec<Option<Acquisition<'_>>> = asking.into_iter().map(Some).collect();
    for (share, outcome) in shares.iter().zip(&outcomes) {
        for (index, place) in share.places.iter().enumerate() {
            let run_id = outcome.as_ref().ok().and_then(|answer| answer.run_id.clone());
            let reply = asking[*place].take().map(|acquisition| hear(acquisition, outcome, index));
            replies[*place] = reply.map(|reply| Heard { reply, run_id });
        }
    }
    // The clients know all grants before an observer hears anything, because the observer may close a client, and a
    // grant after the close could not be given back.
    tell(&shares, &outcomes, &replies, &askers);
    replies.into_iter().flatten().collect()
}

/// Tells what each granted request shows, and its grants.
fn tell(
    shares: &[BundleShare],
    outcomes: &[std::result::Result<Answer<Answered>, Failed>],
    replies: &[Option<Heard>],
    askers: &[(&AcquireRequest<'_>, Instant)],
) {
    for (share, outcome) in shares.iter().zip(outcomes) {
        let Some(answer) = outcome.as_ref().ok().filter(|answer| answer.value.is_granted()) else { continue };
        for place in &share.places {
            let (request, started) = askers[*place];
            let engine = request.engine;
            let grant = match &replies[*place] {
                Some(Heard { reply: Ok(Reply::Granted((hold, _))), .. }) => Some((&**hold, started, false)),
                _ => None,
            };
            let missing = engine.sender.judge(request.name, request.needs, answer.copies.as_ref(), "");
            engine.tell_grant(request, answer.sent, missing.unwrap_or_default(), grant);
        }
    }
}

/// The step that confirms the grant of these locks, which share a request.
fn confirmation(asking: &[Acquisition<'_>], places: &[usize]) -> Option<Confirmation> {
    let all = places.iter().filter_map(|place| asking[*place].confirmation());
    all.reduce(|one, other| Confirmation { needs: one.needs.and(other.needs), ..one })
}

impl Answered {
    fn is_granted(&self) -> bool {
        match self {
            Self::One(attempt) => attempt.is_granted(),
            Self::Bundle(attempt) => *attempt == BundleAttempt::Granted,
        }
    }
}

/// Puts the locks that one request can take together.
fn shares(asking: &[Acquisition<'_>]) -> Vec<BundleShare> {
    let mut shares: Vec<BundleShare> = vec![];
    for (place, acquisition) in asking.iter().enumerate() {
        let bundle = acquisition.bundle();
        let has_room =
            |share: &&mut BundleShare| bundle.is_some() && share.bundle == bundle && share.places.len() < MOST_PARTS;
        match shares.iter_mut().find(has_room) {
            Some(share) => share.places.push(place),
            None => shares.push(BundleShare { bundle, places: vec![place] }),
        }
    }
    shares
}

/// Gives one lock its part of the outcome of its request.
fn hear(
    mut acquisition: Acquisition<'_>,
    outcome: &std::result::Result<Answer<Answered>, Failed>,
    index: usize,
) -> Result<Reply> {
    let mut is_free = false;
    let own = match outcome {
        Err(failed) => Err(failed.clone()),
        Ok(answer) => match &answer.value {
            Answered::One(attempt) => Ok(answer.with(*attempt)),
            Answered::Bundle(BundleAttempt::Granted) => Ok(answer.with(Attempt::Granted { token: None })),
            Answered::Bundle(BundleAttempt::Refused(states)) => match states.get(index) {
                Some(PartState::Busy { ttl_ms }) => Ok(answer.with(Attempt::Busy { ttl_ms: *ttl_ms })),
                Some(PartState::OtherKind) => Ok(answer.with(Attempt::OtherKind)),
                Some(PartState::Unreadable(refusal)) => {
                    let error = Error::refused(refusal.clone().at(Arc::from(acquisition.server())));
                    let in_doubt = InDoubt { fenceable: vec![], unfenceable: answer.unfenceable };
                    Err(Failed { error, in_doubt: Some(in_doubt).filter(|_| answer.unfenceable) })
                }
                state @ (Some(PartState::Free | PartState::Ours) | None) => {
                    if state == Some(&PartState::Ours) {
                        acquisition.was_granted_in_vain();
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
