//! Looks at the map of the cluster: one look at a time, at most one a second, in the background.

use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::Shared;
use super::told::{self, Told};
use crate::conn::server::Server;
use crate::error::{Error, ErrorKind};
use crate::time::Instant;
use crate::transport::{Fault, ServerNumber};

/// When the map was looked at, and by whom it is looked at next.
#[derive(Debug, Default)]
pub(super) struct Refreshing {
    last: Option<Instant>,
    under_way: bool,
    /// The number of looks so far: each begins with another member, because one may have an old map.
    turn: usize,
    /// The member that did not answer, which is asked last.
    doubted: Option<ServerNumber>,
}

impl Refreshing {
    pub(super) fn turn(&self) -> usize {
        self.turn
    }
}

/// Has the map looked at soon. `doubted` is a member that did not answer.
pub(super) fn ask_for(shared: &Arc<Shared>, doubted: Option<ServerNumber>) {
    let mut state = shared.state.lock();
    if doubted.is_some() {
        state.refreshing.doubted = doubted;
    }
    if state.closed || state.refreshing.under_way {
        return;
    }
    state.refreshing.under_way = true;
    drop(state);
    let in_thread = Arc::clone(shared);
    let work = move || {
        if wait_for_turn(&in_thread) {
            // The next request without an answer asks for another look.
            let _ = look(&in_thread, LONGEST_LOOK);
        }
        in_thread.state.lock().refreshing.under_way = false;
    };
    if thread::Builder::new().name("lockson-map".into()).spawn(work).is_err() {
        shared.state.lock().refreshing.under_way = false;
    }
}

/// Waits until a second has passed since the last look. Returns `false` when the client was closed.
fn wait_for_turn(shared: &Shared) -> bool {
    let mut state = shared.state.lock();
    loop {
        let now = Instant::now();
        let due = state.refreshing.last.map_or(now, |last| last.after(PAUSE));
        if state.closed || due <= now {
            return !state.closed;
        }
        shared.closing.wait_for(&mut state, now.nap_until(due));
    }
}

/// Looks at the map within `limit`. Fails when no member answers.
pub(super) fn look(shared: &Shared, limit: Duration) -> Result<(), Fault> {
    let end = Instant::now().after(limit);
    let (mut best, mut failure): (Option<Told>, Option<Fault>) = (None, None);
    let members = begin(shared);
    for (left, member) in (1..=members.len()).rev().zip(&members) {
        let now = Instant::now();
        if now >= end {
            break;
        }
        // A member that does not answer leaves time for the others.
        let share = now.until(end) / u32::try_from(left).unwrap_or(u32::MAX);
        let told = match told::ask(member, now.after(share.max(shared.look_limit)).min(end)) {
            Ok(told) => told,
            Err(fault) => {
                failure = Some(fault);
                continue;
            }
        };
        let is_trusted = shared.state.lock().map.trusts(&told);
        if is_trusted {
            accept(shared, &told);
            return Ok(());
        }
        if best.as_ref().is_none_or(|best| rank(best) < rank(&told)) {
            best = Some(told);
        }
    }
    // All members that answer have an older map, as after a reset of the whole cluster, or they serve no requests.
    match (best, failure) {
        (Some(told), _) => {
            accept(shared, &told);
            Ok(())
        }
        (None, Some(fault)) => Err(fault),
        (None, None) => {
            let text = format!("no member of the cluster {} was reached in time", shared.label);
            Err(Fault::NotSent(Error::new(ErrorKind::Connection, text)))
        }
    }
}

/// Begins a look. Returns the members in the order of the questions: those of the map, then those of the URL, and the
/// one that did not answer last.
fn begin(shared: &Shared) -> Vec<Arc<Server>> {
    let mut state = shared.state.lock();
    let turn = state.refreshing.turn;
    state.refreshing.last = Some(Instant::now());
    state.refreshing.turn = turn.wrapping_add(1);
    let mut members = state.members.clone();
    if !members.is_empty() {
        let first = turn % members.len();
        members.rotate_left(first);
    }
    let mut seeds: Vec<_> = (0..state.seeds).map(ServerNumber).collect();
    seeds.rotate_left(turn % state.seeds);
    members.extend(seeds.into_iter().filter(|seed| !state.members.contains(seed)));
    if let Some(doubted) = state.refreshing.doubted {
        members.sort_by_key(|member| *member == doubted);
    }
    members.into_iter().filter_map(|number| state.servers.get(number.0).cloned()).collect()
}

fn rank(told: &Told) -> (bool, Option<u64>) {
    (told.is_well, told.epoch)
}

fn accept(shared: &Shared, told: &Told) {
    let mut state = shared.state.lock();
    let before = std::mem::take(&mut state.members);
    let super::State { map, servers, closed, .. } = &mut *state;
    let after = map.accept(told, |place| super::add(servers, *closed, place, &shared.address, &shared.making));
    let has_left = |number: &ServerNumber| !after.contains(number);
    let left: Vec<Arc<Server>> =
        before.into_iter().filter(has_left).filter_map(|number| servers.get(number.0).cloned()).collect();
    state.members = after;
    state.refreshing.doubted = None;
    drop(state);
    // Closing connections takes calls of the system.
    left.iter().for_each(|server| server.leave());
}

/// The shortest time between two looks.
const PAUSE: Duration = Duration::from_secs(1);
const LONGEST_LOOK: Duration = Duration::from_secs(2);
