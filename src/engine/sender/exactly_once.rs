//! Exactly once: sends a request, and after a missing reply fences the request and repeats it.

use std::sync::Arc;
use std::{iter, ptr, slice};

use crate::conn::{Redirect, Request, Response, Route, Topology, ask, by_server, gather, side_by_side};
use crate::engine::caller::Caller;
use crate::error::{Error, ErrorKind, Loss};
use crate::script::Call;
use crate::state::exchange::{Bounds, Exchange, Failed, InDoubt, Next};
use crate::time::Instant;
use crate::transport::{Copies, Fault, Identity, Limits, Question, ServerNumber};

/// A reply, and the history of its request.
#[derive(Debug)]
pub(crate) struct Answer<T> {
    pub(crate) value: T,
    /// The sending time of the answered copy, from which leases are counted.
    pub(crate) sent: Instant,
    /// Whether an earlier copy was unanswered, so that this reply may be for the second run.
    pub(crate) repeated: bool,
    /// Whether an earlier copy could not be fenced and may still run.
    pub(crate) unfenceable: bool,
    /// A time before the request was sent: earlier copies run no more after it, unless a copy could not be fenced.
    pub(crate) clear_since: Instant,
    /// The run of the server process, where the bounds of the call ask for it. Two servers with the same run are one.
    pub(crate) run_id: Option<Arc<str>>,
    /// The replicas that have the request, where its answer needs them.
    pub(crate) copies: Option<Copies>,
}

impl<T> Answer<T> {
    /// Another value with the history of this one.
    pub(crate) fn with<U>(&self, value: U) -> Answer<U> {
        let Self { sent, repeated, unfenceable, clear_since, .. } = *self;
        let (run_id, copies) = (self.run_id.clone(), self.copies.clone());
        Answer { value, sent, repeated, unfenceable, clear_since, run_id, copies }
    }
}

/// What became of a request.
pub(crate) type SendResult<T> = Result<Answer<T>, Failed>;

/// Fences the copies that earlier requests left in doubt, then sends the call until a reply arrives or the bounds are
/// reached. Each attempt goes to the server that stores the key at that time, and each unanswered copy is fenced at the
/// server to which the copy was sent.
///
/// Before a repetition every unanswered copy is fenced, so no older copy can run after the repetition. Scripts are
/// written so that a second run right after the first changes nothing. Where another server stores the key by now, the
/// repetition goes there at once: the copy at the former server counts as unfenceable, and the background fences it.
pub(crate) fn send<T: Send>(outgoing: Outgoing<'_, T>, caller: Option<&Caller<'_>>) -> SendResult<T> {
    let now = Instant::now();
    let mut first = None;
    if outgoing.in_doubt.is_empty() && now < outgoing.bounds.end {
        // Nearly every request is answered at once, and needs no history.
        match outgoing.attempt(outgoing.route(), outgoing.bounds.limits(now), now) {
            Response { answer: Ok((value, copies)), sent, run_id, .. } => {
                return Ok(Answer {
                    value,
                    sent,
                    repeated: false,
                    unfenceable: false,
                    clear_since: now,
                    run_id,
                    copies,
                });
            }
            failed => first = Some(failed),
        }
    }
    let mut sending = Sending::new(outgoing, now);
    let answer = first.and_then(|failed| sending.attempted(failed, caller));
    let mut one = (sending, answer);
    drive(slice::from_mut(&mut one), caller);
    ended(one)
}

/// A call that is to be sent.
pub(crate) struct Outgoing<'a, T> {
    pub(crate) topology: &'a dyn Topology,
    pub(crate) call: &'a Call<T>,
    pub(crate) bounds: Bounds,
    /// The copies that earlier requests left in doubt; they are fenced before the call is sent.
    pub(crate) in_doubt: InDoubt,
}

impl<'a, T> Outgoing<'a, T> {
    pub(crate) fn new(topology: &'a dyn Topology, in_doubt: InDoubt, call: &'a Call<T>, mut bounds: Bounds) -> Self {
        if topology.has_slots() && bounds.repeat {
            // A member that does not answer may have a successor, which is asked within the bound as well.
            bounds.command_timeout /= 2;
        }
        Self { topology, call, bounds, in_doubt }
    }

    /// Sends the request on this way.
    fn attempt(&self, route: Route, limits: Limits, sent: Instant) -> Response<T> {
        let server = &route.server;
        let Some(round_trips) = self.call.round_trips() else { return ask(self.request_of(route, limits), sent) };
        let confirmation = |answer: &T| self.call.confirmation(answer);
        Response::of(server, server.round_trips(limits, route.asking, round_trips, confirmation), sent)
    }

    /// The way to the server that stores the key now.
    fn route(&self) -> Route {
        self.topology.route(self.call.route().key())
    }

    fn request_of(&self, Route { server, asking }: Route, limits: Limits) -> Request<'_, T> {
        Request { server, asking, limits, fitness: self.bounds.fitness, call: self.call, whole: false }
    }
}

/// Sends several calls at once: one round trip where every server answers. Each call has its own bounds and its own
/// history. A connection with several unanswered copies is fenced once. Calls of several round trips go one by one to
/// each server, all servers side by side. Returns the answers in the order of the calls.
pub(crate) fn send_all<T: Send>(outgoing: Vec<Outgoing<'_, T>>, caller: Option<&Caller<'_>>) -> Vec<SendResult<T>> {
    let now = Instant::now();
    let mut all: Vec<_> = outgoing.into_iter().map(|one| (Sending::new(one, now), None)).collect();
    drive(&mut all, caller);
    all.into_iter().map(ended).collect()
}

/// A call, and its answer once there is one.
type Attempted<'a, T> = (Sending<'a, T>, Option<Answer<T>>);

/// Goes on until each call has its answer, or has reached its bounds.
fn drive<T: Send>(all: &mut [Attempted<'_, T>], caller: Option<&Caller<'_>>) {
    while attempt_all(all, caller) || end_rests(all, caller) || fence_one_connection(all) || rest_together(all, caller)
    {
    }
}

fn ended<T>((sending, answer): Attempted<'_, T>) -> SendResult<T> {
    answer.ok_or_else(|| sending.exchange.give_up())
}

/// Sends the calls that are ready. Returns whether any was.
fn attempt_all<T: Send>(all: &mut [Attempted<'_, T>], caller: Option<&Caller<'_>>) -> bool {
    let now = Instant::now();
    let unanswered = all.iter().enumerate().filter(|(_, (_, answer))| answer.is_none());
    let ready = unanswered.filter_map(|(place, (sending, _))| match sending.exchange.next(now) {
        Next::Send(limits) => Some((place, sending, limits)),
        _ => None,
    });
    let (single, several): (Vec<_>, Vec<_>) = ready.partition(|(_, sending, _)| sending.is_one_request());
    let outcomes = if several.is_empty() {
        attempt_share(&single)
    } else {
        let several = by_server(several.into_iter().map(|one| (one.1.route().server, one)));
        let shares = iter::once(single).chain(several.into_iter().map(|(_, share)| share));
        let shares: Vec<_> = shares.filter(|share| !share.is_empty()).collect();
        side_by_side(&shares, |share| attempt_share(share)).into_iter().flatten().collect()
    };
    let any = !outcomes.is_empty();
    for (place, outcome) in outcomes {
        let (sending, answer) = &mut all[place];
        *answer = sending.attempted(outcome, caller);
    }
    any
}

/// Sends calls of one request together, or the calls of several round trips for one server. Returns the outcomes with
/// the places of the calls.
fn attempt_share<T: Send>(share: &[(usize, &Sending<'_, T>, Limits)]) -> Vec<(usize, Response<T>)> {
    if share.iter().all(|(_, sending, _)| sending.is_one_request()) {
        let places = share.iter().map(|(place, ..)| *place);
        let requests = share.iter().map(|&(_, sending, limits)| sending.outgoing.request_of(sending.route(), limits));
        return places.zip(gather(requests.collect())).collect();
    }
    let mut outcomes = vec![];
    for &(place, sending, _) in share {
        // The calls before may have used up the time of this one.
        let now = Instant::now();
        if let Next::Send(limits) = sending.exchange.next(now) {
            outcomes.push((place, sending.outgoing.attempt(sending.route(), limits, now)));
        }
    }
    outcomes
}

/// Ends the rests that are over. Returns whether any was.
fn end_rests<T>(all: &mut [Attempted<'_, T>], caller: Option<&Caller<'_>>) -> bool {
    let (now, interruption) = (Instant::now(), interruption(caller));
    let mut any = false;
    for sending in all.iter_mut().filter(|(_, answer)| answer.is_none()).map(|(sending, _)| sending) {
        if sending.rests_until(now).is_some_and(|until| until <= now || interruption.is_some()) {
            sending.exchange.rested(now, interruption.clone());
            any = true;
        }
    }
    any
}

/// Rests until the first of the calls may go on. Returns whether any rests.
fn rest_together<T>(all: &mut [Attempted<'_, T>], caller: Option<&Caller<'_>>) -> bool {
    let now = Instant::now();
    let unanswered = all.iter().filter(|(_, answer)| answer.is_none());
    let first = unanswered.filter_map(|(sending, _)| sending.rests_until(now)).min();
    if let Some(until) = first {
        rest(caller, until);
        // A call alone goes on as soon as its caller is woken.
        if let [(sending, None)] = all {
            sending.exchange.rested(Instant::now(), interruption(caller));
        }
    }
    first.is_some()
}

/// Fences a connection with unanswered copies, for all calls that were sent over it. Returns whether there was any.
fn fence_one_connection<T>(all: &mut [Attempted<'_, T>]) -> bool {
    let now = Instant::now();
    let mut unfenced = all.iter_mut().filter(|(_, answer)| answer.is_none()).map(|(sending, _)| sending);
    let Some((first, (identity, limits))) =
        unfenced.find_map(|sending| sending.fence(now).map(|fence| (sending, fence)))
    else {
        return false;
    };
    let topology = first.outgoing.topology;
    if first.leave_behind(&identity) {
        return true;
    }
    let outcome = fence_copy(topology, &identity, limits);
    let now = Instant::now();
    // The others try again after a failure, because a fault is for one request.
    if let Ok(fenced) = outcome {
        // Numbers of servers are unique within a topology only.
        let others = unfenced.filter(|sending| ptr::addr_eq(sending.outgoing.topology, topology));
        for other in others.filter(|other| other.fence(now).is_some_and(|(theirs, _)| theirs == identity)) {
            other.exchange.fenced(now, Ok(fenced));
        }
    }
    first.exchange.fenced(now, outcome);
    true
}

/// A call on its way.
struct Sending<'a, T> {
    outgoing: Outgoing<'a, T>,
    exchange: Exchange,
    /// The way of the next attempt only, by the word of the server that was asked last.
    redirected: Option<Route>,
}

impl<'a, T> Sending<'a, T> {
    fn new(mut outgoing: Outgoing<'a, T>, now: Instant) -> Self {
        let exchange = Exchange::new(std::mem::take(&mut outgoing.in_doubt), outgoing.bounds, now);
        Self { outgoing, exchange, redirected: None }
    }

    /// Whether the call is one request, and not several round trips.
    fn is_one_request(&self) -> bool {
        self.outgoing.call.round_trips().is_none()
    }

    /// The copy to fence now, if the next step is to fence one.
    fn fence(&self, now: Instant) -> Option<(Identity, Limits)> {
        if let Next::Fence(identity, limits) = self.exchange.next(now) { Some((identity, limits)) } else { None }
    }

    /// The end of the rest, if the next step is to rest.
    fn rests_until(&self, now: Instant) -> Option<Instant> {
        if let Next::Rest(until) = self.exchange.next(now) { Some(until) } else { None }
    }

    /// Takes the outcome of an attempt.
    fn attempted(&mut self, outcome: Response<T>, caller: Option<&Caller<'_>>) -> Option<Answer<T>> {
        let exchange = &mut self.exchange;
        let Response { server, answer, sent, ended, run_id } = outcome;
        self.redirected = None;
        match answer {
            Ok((value, copies)) => {
                let (repeated, unfenceable) = (exchange.is_repeated(), exchange.is_unfenceable());
                let clear_since = exchange.clear_since;
                return Some(Answer { value, sent, repeated, unfenceable, clear_since, run_id, copies });
            }
            Err(Fault::Refused(refusal)) => match self.outgoing.topology.redirect(server, &refusal) {
                Redirect::AsItSays => exchange.failed(sent, ended, Fault::Refused(refusal), false),
                Redirect::Later => exchange.postponed(sent, ended, refusal),
                Redirect::Elsewhere(route) => {
                    self.redirected = Some(route);
                    exchange.redirected(sent, ended, refusal);
                }
            },
            Err(fault) => {
                doubt(self.outgoing.topology, server, &fault);
                exchange.failed(sent, ended, fault, interruption(caller).is_some());
            }
        }
        None
    }

    /// The way of the next attempt.
    fn route(&self) -> Route {
        self.redirected.clone().unwrap_or_else(|| self.outgoing.route())
    }

    /// Leaves a copy in doubt to the background if another server stores the key by now.
    fn leave_behind(&mut self, copy: &Identity) -> bool {
        let is_elsewhere = is_elsewhere(self.outgoing.topology, self.outgoing.call.route().key(), copy);
        if is_elsewhere && let Some(copy) = self.exchange.left_behind() {
            self.outgoing.topology.leave_behind(copy);
        }
        is_elsewhere
    }
}

/// The reason for which the caller wants no further attempt.
fn interruption(caller: Option<&Caller<'_>>) -> Option<Error> {
    caller.and_then(|caller| caller.check().err())
}

/// Rests until `until`, or until the caller must check whether to go on.
fn rest(caller: Option<&Caller<'_>>, until: Instant) {
    match caller {
        // The check follows any rest.
        Some(caller) => drop(caller.sleep(until)),
        None => crate::system::thread::sleep(Instant::now().until(until)),
    }
}

/// Turns a key of another type into a loss: a client overwrote the lock.
pub(crate) fn taken_if_overwritten<T>(failed: Failed) -> SendResult<Result<T, Loss>> {
    if failed.error.redis_word() != Some("WRONGTYPE") {
        return Err(failed);
    }
    let unfenceable = failed.in_doubt.is_some_and(|in_doubt| in_doubt.unfenceable);
    let (value, now) = (Err(Loss::Taken), Instant::now());
    Ok(Answer { value, sent: now, repeated: false, unfenceable, clear_since: now, run_id: None, copies: None })
}

/// Tries once to fence the copies in doubt of requests about `key`. Copies at a former server are left to the
/// background, and count as unfenceable.
pub(crate) fn fence(
    topology: &dyn Topology,
    key: &[u8],
    in_doubt: &mut InDoubt,
    deadline: Instant,
) -> Result<(), Fault> {
    while let Some(copy) = in_doubt.fenceable.pop() {
        if is_elsewhere(topology, key, &copy) {
            topology.leave_behind(copy);
            in_doubt.unfenceable = true;
            continue;
        }
        match fence_copy(topology, &copy, Limits::by(deadline)) {
            Ok(fenced) => in_doubt.unfenceable |= !fenced,
            Err(fault) => {
                in_doubt.fenceable.push(copy);
                return Err(fault);
            }
        }
    }
    Ok(())
}

/// Whether another server than the one that got the copy stores the key by now.
fn is_elsewhere(topology: &dyn Topology, key: &[u8], copy: &Identity) -> bool {
    topology.route(key).server.number() != copy.number
}

/// Fences one copy at the server to which the copy was sent. `Ok(false)` where that server cannot fence, or is unknown.
fn fence_copy(topology: &dyn Topology, identity: &Identity, limits: Limits) -> Result<bool, Fault> {
    let Some(server) = topology.server(identity.number) else { return Ok(false) };
    let outcome = server.fence(identity, limits);
    if let Err(fault) = &outcome {
        doubt(topology, identity.number, fault);
    }
    outcome
}

/// Tells the topology of a server that did not answer, or that is of another kind than the topology.
fn doubt(topology: &dyn Topology, server: ServerNumber, fault: &Fault) {
    match fault {
        Fault::NotSent(error) if !matches!(error.kind(), ErrorKind::Connection | ErrorKind::Unsupported) => {}
        Fault::NotSent(_) | Fault::Unanswered(..) => topology.doubt(server),
        Fault::Refused(refusal) => _ = topology.redirect(server, refusal),
    }
}

#[cfg(test)]
mod tests;
