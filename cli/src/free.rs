//! `lockson free`: gives a lock back in place of its holder, each kind in its own way.

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use lockson::{Client, ErrorKind, Inspection, Lock, LockKind, PermitId};

use crate::args::Connection;
use crate::output::{json, json_of, place, shown, unless_hidden};
use crate::{Failure, NO, connect};

/// Gives a lock back in place of its holder, and wakes all waiters
///
/// The holder is told and may still be at work: end its process first where you can. Refused for a key that is no lock.
#[derive(Debug, Args)]
pub(crate) struct Options {
    name: String,
    /// Why; printed with what was freed, for the log
    #[arg(long)]
    reason: String,
    /// Only the hold of this owner, one reader or one place in a queue; other holds stay
    #[arg(long, conflicts_with_all = ["permit", "value", "permits", "latch"])]
    owner: Option<String>,
    /// Only this expiring permit
    #[arg(long, value_name = "ID", conflicts_with_all = ["value", "permits", "latch"])]
    permit: Option<String>,
    /// This value of a group lock
    #[arg(long, conflicts_with_all = ["permits", "latch"])]
    value: Option<String>,
    /// Gives this many permits back to a semaphore
    #[arg(long, value_name = "NUMBER", conflicts_with = "latch")]
    permits: Option<u32>,
    /// Opens a count-down latch for all who wait
    #[arg(long)]
    latch: bool,
    /// Prints JSON
    #[arg(long)]
    json: bool,
}

/// Frees the lock, and prints who held it.
pub(crate) fn free(connection: &Connection, options: &Options) -> Result<ExitCode, Failure> {
    let client = connect::builder(connection)?.connect()?;
    let before = client.inspect(&options.name)?;
    let is_freed = free_by_kind(&client, options, &before)?;
    if options.json {
        let record = serde_json::json!({ "freed": is_freed, "reason": options.reason, "before": json_of(&before) });
        json(&record)?;
    } else {
        let (name, reason, mut out) = (shown(before.name()), &options.reason, io::stdout());
        match &options.owner {
            _ if !is_freed => writeln!(out, "nothing to free at {name}: {reason}")?,
            // The hold may have ended by itself since it was looked at.
            Some(owner) => writeln!(out, "{name} is not held by {} now: {reason}", shown(owner))?,
            None => writeln!(out, "freed {name}: {reason}")?,
        }
        let only = options.owner.as_ref().or(options.permit.as_ref());
        // Of a group only the hash of a value is known.
        let is_told = is_freed && options.value.is_none();
        for holder in before.holders().iter().filter(|holder| is_told && only.is_none_or(|one| one == holder.owner())) {
            writeln!(out, "  was held by {} at {}", shown(holder.owner()), place(holder.client()))?;
        }
    }
    Ok(if is_freed { ExitCode::SUCCESS } else { ExitCode::from(NO) })
}

/// Returns whether something was freed.
fn free_by_kind(client: &Client, options: &Options, before: &Inspection) -> Result<bool, Failure> {
    let name = &options.name;
    if let Some(value) = &options.value {
        return Ok(client.get_group_lock(name, [value]).force_unlock()?);
    }
    if before.kind() == Some(LockKind::Permit) && (options.latch || options.permits.is_some()) {
        return Err("expiring permits are taken; give --permit ID, or no option to free all".into());
    }
    if options.latch {
        let latch = client.get_count_down_latch(name);
        let is_freed = latch.delete()?;
        // Java's waiters sleep on when a latch is deleted, and wake when one counts down to zero. Should this program be
        // killed in between, the latch opens by itself.
        if is_freed && client.get_semaphore(name).set_permits_once_for(1, Duration::from_secs(10))? {
            latch.count_down()?;
        }
        return Ok(is_freed);
    }
    if let Some(permits) = options.permits {
        return Ok(client.get_semaphore(name).release_if_exists(permits)?);
    }
    unless_hidden(before)?;
    if let Some(permit) = &options.permit {
        return free_permits(client, name, vec![permit.parse()?]);
    }
    if let Some(owner) = &options.owner {
        return free_owner(client, name, owner, before);
    }
    match before.kind() {
        None => Ok(false),
        Some(LockKind::Permit) => free_all_permits(client, name, before),
        Some(LockKind::Semaphore) => {
            Err("a semaphore or a latch has no holder; give --permits NUMBER or --latch".into())
        }
        Some(LockKind::Token) => {
            Err("any text in Redis looks like a token lock; give --owner with the value that `show` prints".into())
        }
        Some(LockKind::Group) => Err(BY_VALUE.into()),
        Some(LockKind::Leader) => Ok(client.get_election(name).depose()?),
        kind => Ok(lock_of(client, name, kind).force_unlock()?),
    }
}

/// Frees the hold, the permit or the place in a queue of one owner. Returns whether it was there, or may have been, of
/// more than are listed.
pub(crate) fn free_owner(client: &Client, name: &str, owner: &str, before: &Inspection) -> Result<bool, Failure> {
    match before.kind() {
        Some(LockKind::Permit) => return free_permits(client, name, vec![owner.parse()?]),
        Some(LockKind::Group) => return Err(BY_VALUE.into()),
        // Expiring permits of which none is taken look so.
        Some(LockKind::Semaphore) => return Ok(false),
        _ => {}
    }
    let is_there = before.holders().iter().any(|holder| holder.owner() == owner)
        || before.waiters().iter().any(|waiter| waiter.owner() == owner);
    let is_cut = before.holder_count() > before.holders().len() as u64 || before.waiters().len() >= MOST_LISTED;
    lock_of(client, name, before.kind()).force_unlock_owner(owner)?;
    Ok(is_there || is_cut)
}

/// As `Inspection::waiters` says.
const MOST_LISTED: usize = 1_000;

const BY_VALUE: &str = "a group is freed value by value; give --value VALUE";

/// The handle whose release wakes the waiters of this kind.
fn lock_of(client: &Client, name: &str, kind: Option<LockKind>) -> Lock {
    match kind {
        Some(LockKind::Fair | LockKind::NonReentrantFair) => client.get_fair_lock(name),
        Some(LockKind::Fenced | LockKind::Leader) => client.get_fenced_lock(name).into(),
        Some(LockKind::Write) => client.get_read_write_lock(name).write(),
        Some(LockKind::Read) => client.get_read_write_lock(name).read(),
        Some(LockKind::Token) => client.get_token_lock(name),
        _ => client.get_lock(name),
    }
}

/// Gives the permits back that were listed, and goes on where a list was cut.
fn free_all_permits(client: &Client, name: &str, before: &Inspection) -> Result<bool, Failure> {
    let (mut freed, mut found) = (false, before.clone());
    loop {
        let ids = found.holders().iter().map(|holder| holder.owner().parse());
        let some = free_permits(client, name, ids.collect::<Result<_, _>>()?)?;
        freed |= some;
        if !some || found.holder_count() <= found.holders().len() as u64 {
            return Ok(freed);
        }
        found = client.inspect(name)?;
    }
}

/// Gives these permits back. Returns whether one of them was taken.
fn free_permits(client: &Client, name: &str, ids: Vec<PermitId>) -> Result<bool, Failure> {
    let permits = client.get_permit_expirable_semaphore(name);
    // One by one: a permit that has expired by now must not keep the others.
    let freed = ids.into_iter().map(|id| match permits.release_by_id(&[id]) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotHeld => Ok(false),
        Err(error) => Err(error),
    });
    Ok(freed.collect::<Result<Vec<_>, _>>()?.contains(&true))
}
