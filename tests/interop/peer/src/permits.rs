//! The verbs of semaphores whose permits have ids and expire.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use lockson::{Cancel, ExpiringPermits, PermitExpirableSemaphore, PermitId};

use crate::answer::{Answer, Failure, put};
use crate::clients::Clients;
use crate::request::Request;

/// The permits that this process has taken: a command may release permits of any thread by their ids.
#[derive(Debug, Default)]
pub(crate) struct Held(Mutex<Vec<ExpiringPermits>>);

pub(crate) fn perform(
    clients: &Clients,
    request: &Request,
    answer: &mut Answer,
    cancel: &Cancel,
) -> Result<(), Failure> {
    let semaphore = clients.find(request)?.get_permit_expirable_semaphore(request.text("name")?);
    match request.verb() {
        "acquire" | "try_acquire" => take(clients, request, answer, cancel),
        "release" => give_back(clients, request, answer, &semaphore).map(drop),
        "try_release" => {
            let released = match give_back(clients, request, answer, &semaphore) {
                Err(failure) if failure.kind == "not_owner" => 0,
                outcome => outcome?,
            };
            answer.put("released", released);
            Ok(())
        }
        "available" => put(answer, "permits", || semaphore.available()),
        "acquired" => put(answer, "permits", || semaphore.acquired()),
        "permits" => put(answer, "permits", || semaphore.permits()),
        "try_set_permits" => {
            let permits = request.number("permits")?;
            put(answer, "set", || semaphore.set_permits_once(permits))
        }
        "set_permits" => {
            let permits = request.number("permits")?;
            Ok(answer.time(|| semaphore.set_permits(permits))?)
        }
        "add_permits" => {
            let permits = request.number("permits")?;
            Ok(answer.time(|| semaphore.add_permits(permits))?)
        }
        "update_lease" => {
            let (id, lease) = (id(&request.text("id")?)?, Duration::from_millis(request.number("lease_ms")?));
            put(answer, "updated", || semaphore.update_lease(&id, lease))
        }
        "lease" => {
            let id = id(&request.text("id")?)?;
            let left = answer.time(|| semaphore.remaining_time_to_live(&id))?;
            let unknown = || Failure { kind: "not_owner", message: "the permit is unknown or has expired".into() };
            let left = left.ok_or_else(unknown)?;
            let ms = if left == Duration::MAX { -1 } else { i128::try_from(left.as_millis()).unwrap_or(i128::MAX) };
            answer.put("lease_ms", ms);
            Ok(())
        }
        "delete" => put(answer, "deleted", || semaphore.delete()),
        verb => Err(Failure::unsupported(format!("this library has no {verb} for this kind"))),
    }
}

/// A handle with the request's lease, whose waits an interrupt ends.
pub(crate) fn prepared(
    clients: &Clients,
    request: &Request,
    name: &str,
    cancel: &Cancel,
) -> Result<PermitExpirableSemaphore, Failure> {
    let semaphore = clients.find(request)?.get_permit_expirable_semaphore(name).with_cancel(cancel);
    Ok(match request.optional_number("lease_ms")? {
        Some(millis) => semaphore.with_lease(Duration::from_millis(millis)),
        None => semaphore,
    })
}

fn take(clients: &Clients, request: &Request, answer: &mut Answer, cancel: &Cancel) -> Result<(), Failure> {
    let permits = request.optional_number("permits")?.unwrap_or(1);
    let wait = request.optional_number("wait_ms")?.map(Duration::from_millis);
    if request.verb() == "try_acquire" && request.has("lease_ms") && wait.is_none() {
        return Err(Failure::bad_input("lease_ms needs wait_ms"));
    }
    let semaphore = prepared(clients, request, &request.text("name")?, cancel)?;
    let taken = answer.time(|| match (request.verb(), wait) {
        ("acquire", _) => semaphore.acquire(permits).map(Some),
        (_, Some(wait)) => semaphore.try_acquire_for(permits, wait),
        (_, None) => semaphore.try_acquire(permits),
    })?;
    answer.put("acquired", taken.is_some());
    if let Some(taken) = taken {
        let ids: Vec<String> = taken.ids().iter().map(ToString::to_string).collect();
        answer.put_list("ids", &ids);
        clients.permits().0.lock().unwrap_or_else(PoisonError::into_inner).push(taken);
    }
    Ok(())
}

/// Gives back permits of this process by their guard, and others by their ids. Returns how many.
fn give_back(
    clients: &Clients,
    request: &Request,
    answer: &mut Answer,
    semaphore: &PermitExpirableSemaphore,
) -> Result<usize, Failure> {
    let texts = if request.has("ids") { request.texts("ids")? } else { vec![request.text("id")?] };
    let ids = texts.iter().map(|text| id(text)).collect::<Result<Vec<_>, _>>()?;
    let mut held = clients.permits().0.lock().unwrap_or_else(PoisonError::into_inner);
    let is_whole = |permits: &ExpiringPermits| {
        let own = permits.ids();
        own.len() == ids.len() && own.iter().all(|id| ids.contains(id))
    };
    let own = held.iter().position(is_whole).map(|place| held.swap_remove(place));
    drop(held);
    answer.time(|| match own {
        Some(permits) => permits.release(),
        None => semaphore.release_by_id(&ids),
    })?;
    Ok(ids.len())
}

fn id(text: &str) -> Result<PermitId, Failure> {
    Ok(text.parse()?)
}
