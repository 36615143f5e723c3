//! The verbs of every lock.

use std::time::Duration;

use lockson::{Cancel, Guard, Lock};

use crate::answer::{Answer, Failure, put};
use crate::clients::Clients;
use crate::request::Request;

pub(crate) fn perform(
    clients: &Clients,
    request: &Request,
    answer: &mut Answer,
    cancel: &Cancel,
) -> Result<(), Failure> {
    let lock = clients.target(request)?;
    match request.verb() {
        "lock" => take(request, answer, lock),
        "try_lock" => try_take(request, answer, lock, cancel),
        "unlock" => Ok(answer.time(|| lock.unlock())?),
        "force_unlock" => put(answer, "unlocked", || lock.force_unlock()),
        "is_locked" => put(answer, "locked", || lock.is_locked()),
        "is_held" => put(answer, "held", || Ok(lock.is_held_by_current_thread())),
        "hold_count" => put(answer, "count", || Ok(lock.hold_count())),
        "ttl" => put(answer, "ttl_ms", || lock.remaining_time_to_live().map(ttl)),
        "delete" => put(answer, "deleted", || lock.force_unlock()),
        "token" => Err(Failure::unsupported("this library has a token for each grant, not for a lock")),
        verb => Err(Failure::bad_input(format!("a lock has no verb '{verb}'"))),
    }
}

/// A handle with the request's lease; an interrupt ends the handle's waits if `cancel` is given.
pub(crate) fn prepared(request: &Request, lock: Lock, cancel: Option<&Cancel>) -> Result<Lock, Failure> {
    let lock = match request.optional_number("lease_ms")? {
        Some(millis) => lock.with_lease(Duration::from_millis(millis)),
        None => lock,
    };
    Ok(cancel.map_or(lock.clone(), |cancel| lock.with_cancel(cancel)))
}

fn take(request: &Request, answer: &mut Answer, lock: Lock) -> Result<(), Failure> {
    let lock = prepared(request, lock, None)?;
    let guard = answer.time(|| lock.lock())?;
    leave_to_unlock(answer, Some(guard));
    Ok(())
}

fn try_take(request: &Request, answer: &mut Answer, lock: Lock, cancel: &Cancel) -> Result<(), Failure> {
    let wait = request.optional_number("wait_ms")?.map(Duration::from_millis);
    if request.has("lease_ms") && wait.is_none() {
        return Err(Failure::bad_input("lease_ms needs wait_ms"));
    }
    let lock = prepared(request, lock, Some(cancel))?;
    let guard = answer.time(|| match wait {
        Some(wait) => lock.try_lock_for(wait),
        None => lock.try_lock(),
    })?;
    leave_to_unlock(answer, guard);
    Ok(())
}

/// The hold stays with its thread until the command `unlock`.
fn leave_to_unlock(answer: &mut Answer, guard: Option<Guard>) {
    answer.put("acquired", guard.is_some());
    if let Some(guard) = guard {
        answer.put("owner", guard.owner());
        if let Some(token) = guard.hold().token() {
            answer.put("token", token);
        }
        guard.leave_to_unlock();
    }
}

fn ttl(left: Option<Duration>) -> i128 {
    match left {
        None => -2,
        Some(Duration::MAX) => -1,
        Some(left) => i128::try_from(left.as_millis()).unwrap_or(i128::MAX),
    }
}
