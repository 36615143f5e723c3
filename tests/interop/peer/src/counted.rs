//! The verbs of semaphores and count-down latches.

use std::time::Duration;

use lockson::{Cancel, CountDownLatch, Semaphore};

use crate::answer::{Answer, Failure, put};
use crate::clients::Clients;
use crate::request::Request;

/// Permits belong to nobody: a command of any thread gives them back.
pub(crate) fn semaphore(
    clients: &Clients,
    request: &Request,
    answer: &mut Answer,
    cancel: &Cancel,
) -> Result<(), Failure> {
    let semaphore = clients.find(request)?.get_semaphore(request.text("name")?).with_cancel(cancel);
    let permits = || Ok::<_, Failure>(request.optional_number("permits")?.unwrap_or(1));
    match request.verb() {
        "acquire" => {
            let permits = permits()?;
            answer.time(|| semaphore.acquire(permits))?.leave_to_release();
            Ok(())
        }
        "try_acquire" => try_acquire(request, answer, &semaphore, permits()?),
        "release" => {
            let permits = permits()?;
            Ok(answer.time(|| semaphore.release(permits))?)
        }
        "release_if_exists" => {
            let permits = permits()?;
            put(answer, "released", || semaphore.release_if_exists(permits))
        }
        "drain" => put(answer, "permits", || semaphore.drain()),
        "available" => put(answer, "permits", || semaphore.available()),
        "try_set_permits" => {
            let (permits, ttl) = (request.number("permits")?, request.optional_number("ttl_ms")?);
            put(answer, "set", || match ttl.map(Duration::from_millis) {
                Some(ttl) => semaphore.set_permits_once_for(permits, ttl),
                None => semaphore.set_permits_once(permits),
            })
        }
        "add_permits" => {
            let permits = request.number("permits")?;
            Ok(answer.time(|| semaphore.add_permits(permits))?)
        }
        "delete" => put(answer, "deleted", || semaphore.delete()),
        verb => Err(Failure::unsupported(format!("this library has no {verb} for this kind"))),
    }
}

fn try_acquire(request: &Request, answer: &mut Answer, semaphore: &Semaphore, permits: u32) -> Result<(), Failure> {
    let wait = request.optional_number("wait_ms")?.map(Duration::from_millis);
    let taken = answer.time(|| match wait {
        Some(wait) => semaphore.try_acquire_for(permits, wait),
        None => semaphore.try_acquire(permits),
    })?;
    answer.put("acquired", taken.is_some());
    if let Some(permits) = taken {
        permits.leave_to_release();
    }
    Ok(())
}

pub(crate) fn latch(clients: &Clients, request: &Request, answer: &mut Answer, cancel: &Cancel) -> Result<(), Failure> {
    let latch = clients.find(request)?.get_count_down_latch(request.text("name")?).with_cancel(cancel);
    match request.verb() {
        "try_set_count" => {
            let count = request.number("count")?;
            put(answer, "set", || latch.set_count_once(count))
        }
        "count_down" => Ok(answer.time(|| latch.count_down())?),
        "await" => wait(request, answer, &latch),
        "get_count" => put(answer, "count", || latch.count()),
        "delete" => put(answer, "deleted", || latch.delete()),
        verb => Err(Failure::unsupported(format!("this library has no {verb} for this kind"))),
    }
}

fn wait(request: &Request, answer: &mut Answer, latch: &CountDownLatch) -> Result<(), Failure> {
    let wait = request.optional_number("wait_ms")?.map(Duration::from_millis);
    put(answer, "open", || match wait {
        Some(wait) => latch.wait_for(wait),
        None => latch.wait().map(|()| true),
    })
}
