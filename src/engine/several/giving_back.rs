//! Gives back, extends and re-enters several holds at once.

use std::sync::Arc;

use crate::engine::caller::Caller;
use crate::engine::hold::HoldState;
use crate::engine::hold::requests::Prepared;
use crate::engine::keeper::extend::Extension;
use crate::engine::keeper::partial::PartRelease;
use crate::engine::parts::Engine;
use crate::engine::release::{Begun, LastRelease};
use crate::engine::request::{AcquireRequest, Grant};
use crate::engine::sender::exactly_once::{self, SendResult};
use crate::engine::several::in_shares;
use crate::error::{Error, Result};
use crate::script::bundle::BundleRelease;
use crate::script::{Call, Released};
use crate::state::exchange::{Bounds, Failed, InDoubt};
use crate::state::ledger::GuardNumber;
use crate::time::Instant;

/// A guard of a hold, with its client.
#[derive(Clone, Copy)]
pub(crate) struct Held<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) hold: &'a Arc<HoldState>,
    pub(crate) guard: GuardNumber,
}

/// The last release of a hold on its way, and the copies that must be fenced before.
struct Leaving<'a> {
    place: usize,
    held: Held<'a>,
    last: LastRelease<'a>,
    in_doubt: InDoubt,
}

/// Releases every guard within its bounds; a failure of one guard stops no other. Returns the outcomes in order. A
/// release in doubt is cleaned up in the background.
pub(crate) fn release_at_once(held: &[Held<'_>], bounds: impl Fn(&Engine) -> Bounds) -> Vec<Result<()>> {
    let mut outcomes: Vec<Result<()>> = held.iter().map(|_| Ok(())).collect();
    let start = Instant::now();
    let bounds = bounds_of(held.iter().map(|held| held.engine), bounds);
    let (mut leaving, mut parts): (Vec<_>, Vec<(usize, PartRelease<'_>)>) = (vec![], vec![]);
    // A loss is told before any hold is half released, because the observer may take the locks.
    for held in held {
        held.engine.keeper.with_ledger(held.hold, |ledger, now| ledger.look(now));
    }
    for place in in_order(held.iter().map(|held| held.hold)) {
        let held = held[place];
        match held.engine.begin_release(held.hold, held.guard, for_turn(start, bounds(place))) {
            Begun::Over(outcome) => outcomes[place] = outcome,
            Begun::Part(part) => parts.push((place, part)),
            Begun::Last(mut last) => {
                last.announce(held.engine);
                let in_doubt = held.hold.take_in_doubt();
                let with = held.engine.bundle_of(&*held.hold.kind, &held.hold.name).filter(|_| in_doubt.is_empty());
                leaving.push((with, Leaving { place, held, last, in_doubt }));
            }
        }
    }
    let mut shares = in_shares(leaving);
    // No server delays the releases at another one, so all requests go out at once.
    let calls = shares.iter().map(|leaving| request(leaving));
    let calls: Vec<Call<Vec<Released>>> =
        calls.chain(parts.iter().map(|(_, part)| part.call().map(|one| vec![one]))).collect();
    let whole = shares.iter_mut().map(|leaving| (leaving[0].place, std::mem::take(&mut leaving[0].in_doubt)));
    let sends = whole.chain(parts.iter().map(|(place, _)| (*place, held[*place].hold.take_in_doubt()))).zip(&calls);
    let sends =
        sends.map(|((place, in_doubt), call)| held[place].engine.sender.outgoing(in_doubt, call, bounds(place)));
    let mut answers = exactly_once::send_all(sends.collect(), None);
    // The turns of the holds that stay end first: an observer that hears of a release may re-enter them.
    for ((place, part), answer) in parts.into_iter().zip(answers.split_off(shares.len())) {
        outcomes[place] = held[place].engine.keeper.finish_part(part, part_of(&answer, 0));
    }
    for (leaving, answer) in shares.into_iter().zip(answers) {
        for (index, Leaving { place, held, last, .. }) in leaving.into_iter().enumerate() {
            outcomes[place] = held.engine.finish_release(last, part_of(&answer, index));
        }
    }
    outcomes
}

/// The places of the holds in the order in which their turns are taken: the same for all threads, which would otherwise
/// wait for each other. Owners tell holds of one name apart, which are of several clients.
fn in_order<'a>(holds: impl Iterator<Item = &'a Arc<HoldState>>) -> impl Iterator<Item = usize> {
    let mut holds: Vec<(_, usize)> = holds.zip(0..).collect();
    holds.sort_unstable_by(|(one, _), (other, _)| {
        let by_owner = || one.owner.as_str().cmp(other.owner.as_str());
        one.name.as_str().cmp(other.name.as_str()).then_with(by_owner)
    });
    holds.into_iter().map(|(_, place)| place)
}

/// The bounds of each request at the time of the request. All bounds begin now, however many requests follow one
/// another; but each node of a red lock has a time of its own, which a node that is down does not use up.
fn bounds_of<'a>(
    engines: impl Iterator<Item = &'a Engine>,
    bounds: impl Fn(&Engine) -> Bounds,
) -> impl Fn(usize) -> Bounds {
    let begun: Vec<(&Engine, Bounds)> = engines.map(|engine| (engine, bounds(engine))).collect();
    move |place| match begun[place] {
        (_, begun) if begun.repeat => begun,
        (engine, _) => bounds(engine),
    }
}

/// The bounds of the wait for a turn, which comes late or never after an unanswered request of the hold. The requests
/// of the other holds follow all turns, and half of the time is theirs. Bounds of one attempt begin now, but all turns
/// share their time.
fn for_turn(start: Instant, bounds: Bounds) -> Bounds {
    let limit = if bounds.repeat { start.until(bounds.end) / 2 } else { Instant::now().until(bounds.end) };
    Bounds { end: start.after(limit), ..bounds }
}

fn request(leaving: &[Leaving<'_>]) -> Call<Vec<Released>> {
    let hold = leaving[0].held.hold;
    if leaving.len() == 1 {
        return hold.kind.release(&hold.name, &hold.owner, None).map(|one| vec![one]);
    }
    let parts = leaving.iter().map(|Leaving { held: Held { hold, .. }, .. }| BundleRelease {
        name: &hold.name,
        owner: &hold.owner,
        channel: hold.kind.channel(&hold.name, &hold.owner),
    });
    hold.kind.release_all(&parts.collect::<Vec<_>>())
}

/// The part of the outcome of a request that concerns one of its holds.
fn part_of(outcome: &SendResult<Vec<Released>>, index: usize) -> SendResult<Released> {
    let answer = outcome.as_ref().map_err(Failed::clone)?;
    let missing = || Failed { error: Error::odd_count(), in_doubt: None };
    Ok(answer.with(*answer.value.get(index).ok_or_else(missing)?))
}

/// Raises the time to live of every hold, each within its bounds. Returns the outcomes in order.
pub(crate) fn extend_at_once(
    holds: &[(&Engine, &Arc<HoldState>, Extension)],
    bounds: impl Fn(&Engine) -> Bounds,
) -> Vec<Result<()>> {
    let of = |place: usize| (holds[place].0, holds[place].1);
    let begin = |place: usize, turn| holds[place].0.keeper.begin_extension(holds[place].1, holds[place].2, turn);
    one_request_each((0..holds.len()).map(of).collect(), bounds, None, begin)
}

/// Takes every hold once more, each within its bounds. Returns the outcomes in order.
pub(crate) fn reenter_at_once(
    holds: &[(&AcquireRequest<'_>, Arc<HoldState>)],
    bounds: impl Fn(&Engine) -> Bounds,
    caller: &Caller<'_>,
) -> Vec<Result<Grant>> {
    // A loss is told before any turn is taken, because the observer may take the locks.
    for (request, hold) in holds {
        request.engine.keeper.with_ledger(hold, |ledger, now| ledger.look(now));
    }
    let begin = |place: usize, turn: Bounds| {
        let (request, hold) = &holds[place];
        let engine = request.engine;
        engine.keeper.must_be_live(hold)?;
        // A request in the background may have the turn of the hold while the server is down.
        let why_down = || engine.sender.node(request.name).server.why_down(Instant::now());
        turn.fitness.is_up.then(why_down).flatten().map_or(Ok(()), Err)?;
        engine.begin_reentry(request, hold, turn)
    };
    let holds = holds.iter().map(|(request, hold)| (request.engine, hold)).collect();
    one_request_each(holds, bounds, Some(caller), begin)
}

/// Sends a request for each hold, in turn and within bounds. Returns the outcomes in order.
fn one_request_each<A: Send, R, Finish: FnOnce(SendResult<A>) -> Result<R>>(
    holds: Vec<(&Engine, &Arc<HoldState>)>,
    bounds: impl Fn(&Engine) -> Bounds,
    caller: Option<&Caller<'_>>,
    begin: impl Fn(usize, Bounds) -> Result<Prepared<A, Finish>>,
) -> Vec<Result<R>> {
    let start = Instant::now();
    let bounds = bounds_of(holds.iter().map(|(engine, _)| *engine), bounds);
    let (mut begun, mut outcomes) = (vec![], vec![]);
    for place in in_order(holds.iter().map(|(_, hold)| *hold)) {
        let bounds = bounds(place);
        match begin(place, if holds.len() > 1 { for_turn(start, bounds) } else { bounds }) {
            Ok(one) => begun.push((place, one)),
            Err(error) => outcomes.push((place, Err(error))),
        }
    }
    let sends = begun
        .iter()
        .map(|(place, (call, in_doubt, _))| holds[*place].0.sender.outgoing(in_doubt.clone(), call, bounds(*place)));
    let answers = exactly_once::send_all(sends.collect(), caller);
    for ((place, (.., finish)), answer) in begun.into_iter().zip(answers) {
        outcomes.push((place, finish(answer)));
    }
    outcomes.sort_by_key(|(place, _)| *place);
    let about = |(outcome, (_, hold)): ((_, Result<R>), &(_, &Arc<HoldState>))| {
        outcome.1.map_err(|error| error.about_a(hold.kind.noun(), &hold.name))
    };
    outcomes.into_iter().zip(&holds).map(about).collect()
}
