//! Exactly once: sends a request, and after a missing reply fences the request and repeats it.

use super::caller::Caller;
use crate::conn::{Server, Topology};
use crate::error::Loss;
use crate::script::Call;
use crate::state::exchange::{Bounds, Exchange, Failed, InDoubt, Next};
use crate::time::Instant;
use crate::transport::{Fault, Identity, Limits};

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
}

/// Sends `call` until a reply arrives or the bounds are reached. Each attempt goes to the server that stores the key
/// at that time, and each unanswered copy is fenced at the server to which the copy was sent.
///
/// Before a repetition every unanswered copy is fenced, so no older copy can run after the repetition. Scripts are
/// written so that a second run right after the first changes nothing.
pub(crate) fn send<T>(
    topology: &dyn Topology,
    call: &Call<T>,
    bounds: Bounds,
    caller: Option<&Caller<'_>>,
) -> Result<Answer<T>, Failed> {
    send_after(InDoubt::default(), topology, call, bounds, caller)
}

/// Fences the copies that earlier requests left in doubt, then sends `call`.
pub(crate) fn send_after<T>(
    in_doubt: InDoubt,
    topology: &dyn Topology,
    call: &Call<T>,
    bounds: Bounds,
    caller: Option<&Caller<'_>>,
) -> Result<Answer<T>, Failed> {
    let request = call.packed();
    let interruption = || caller.and_then(|caller| caller.check().err());
    let mut exchange = Exchange::new(in_doubt, call.has_source(), bounds, Instant::now());
    loop {
        match exchange.next(Instant::now()) {
            Next::Fence(identity, limits) => {
                let outcome = fence_copy(topology, &identity, limits);
                exchange.fenced(Instant::now(), outcome);
            }
            Next::Send { whole, limits } => {
                let sent = Instant::now();
                match attempt(&topology.server_for(call.route().key()), call, &request, whole, limits) {
                    Ok(value) => {
                        return Ok(Answer {
                            value,
                            sent,
                            repeated: exchange.is_repeated(),
                            unfenceable: exchange.is_unfenceable(),
                            clear_since: exchange.clear_since(),
                        });
                    }
                    Err(fault) => exchange.failed(sent, Instant::now(), fault, interruption().is_some()),
                }
            }
            Next::Rest(until) => {
                rest(caller, until);
                exchange.rested(Instant::now(), interruption());
            }
            Next::Over(error) => return Err(exchange.give_up(error)),
        }
    }
}

fn attempt<T>(server: &Server, call: &Call<T>, request: &[u8], whole: bool, limits: Limits) -> Result<T, Fault> {
    let read = |reply: &_| call.read(reply);
    if let Some(round_trips) = call.round_trips() {
        return server.round_trips(limits, |send| round_trips.run(send));
    }
    match if whole { call.packed_with_source() } else { None } {
        Some(with_source) => server.request(&with_source, limits, read),
        None => server.request(request, limits, read),
    }
}

/// Rests until `until`, or until the caller must check whether to go on.
fn rest(caller: Option<&Caller<'_>>, until: Instant) {
    match caller {
        // The check follows any rest.
        Some(caller) => drop(caller.sleep(until)),
        None => std::thread::sleep(Instant::now().until(until)),
    }
}

/// Turns a key of another type into a loss: a client overwrote the lock.
pub(crate) fn taken_if_overwritten<T>(failed: Failed) -> Result<Answer<Result<T, Loss>>, Failed> {
    if failed.error.redis_word() != Some("WRONGTYPE") {
        return Err(failed);
    }
    let unfenceable = failed.in_doubt.is_some_and(|in_doubt| in_doubt.unfenceable);
    let now = Instant::now();
    Ok(Answer { value: Err(Loss::Taken), sent: now, repeated: false, unfenceable, clear_since: now })
}

/// Tries once to fence the copies in doubt.
pub(crate) fn fence(topology: &dyn Topology, in_doubt: &mut InDoubt, deadline: Instant) -> Result<(), Fault> {
    while let Some(identity) = in_doubt.fenceable.last() {
        if !fence_copy(topology, identity, Limits::by(deadline))? {
            in_doubt.unfenceable = true;
        }
        in_doubt.fenceable.pop();
    }
    Ok(())
}

/// Fences one copy at the server to which the copy was sent. `Ok(false)` where that server cannot fence, or is unknown.
fn fence_copy(topology: &dyn Topology, identity: &Identity, limits: Limits) -> Result<bool, Fault> {
    topology.server(identity.number).map_or(Ok(false), |server| server.fence(identity, limits))
}

#[cfg(test)]
mod tests;
