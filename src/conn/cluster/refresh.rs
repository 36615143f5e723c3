//! Looks at the map of the cluster: one look at a time, at most one a second, in the background.
//!
//! A look asks one member after another, the next one where the last one was silent for a while, and waits for all of
//! them: each has the whole time of the look, because a slow link needs several round trips. The hosts of the URL take
//! turns with the members of the map, since all members may have moved. The first trusted map ends the look.
//!
//! Looks go on while a master that did not answer is in the map: its replica may take over at any time.

use std::collections::BTreeSet;
use std::iter;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use super::Shared;
use super::member_view::{self, MemberView};
use crate::conn::server::Server;
use crate::conn::trouble::{at, foreign, no_thread};
use crate::system::{mpsc, thread};
use crate::time::{Instant, wait_until};
use crate::transport::{Fault, ServerNumber};

/// When the map was looked at, and by whom it is looked at next.
#[derive(Default)]
pub(super) struct Refreshing {
    last: Option<Instant>,
    pub(super) under_way: bool,
    /// The number of looks so far: each begins with another member, because one may have an old map.
    pub(super) turn: usize,
    /// The members that did not answer, each until it answers a look, or until this time.
    doubted: Vec<(ServerNumber, Instant)>,
}

impl Refreshing {
    fn doubts(&self, member: ServerNumber) -> bool {
        self.doubted.iter().any(|(doubted, _)| *doubted == member)
    }

    fn answered(&mut self, member: ServerNumber) {
        self.doubted.retain(|(doubted, _)| *doubted != member);
    }
}

/// Has the map looked at soon. `doubted` is a member that did not answer.
pub(super) fn ask_for(shared: &Arc<Shared>, doubted: Option<ServerNumber>) {
    let mut state = shared.state.lock();
    if let Some(member) = doubted {
        state.refreshing.answered(member);
        // A caller that still needs the member asks it again before this, and without an answer doubts it again.
        state.refreshing.doubted.push((member, Instant::now().after(shared.command_timeout * 2)));
    }
    if state.closed || std::mem::replace(&mut state.refreshing.under_way, true) {
        return;
    }
    drop(state);
    let in_thread = Arc::clone(shared);
    let work = move || {
        while wait_for_turn(&in_thread) {
            // A failed look leaves the rest to the next one, which the next request without an answer asks for.
            let _ = catch_unwind(AssertUnwindSafe(|| look(&in_thread, in_thread.command_timeout)));
            if !goes_on(&in_thread) {
                return;
            }
        }
    };
    if thread::Builder::new().name("lockson-map".into()).spawn(work).is_err() {
        shared.state.lock().refreshing.under_way = false;
    }
}

/// Waits until a second has passed since the last look. Returns `false` when the client was closed.
fn wait_for_turn(shared: &Shared) -> bool {
    let state = shared.state.lock();
    let due = state.refreshing.last.map_or_else(Instant::now, |last| last.after(PAUSE));
    !wait_until(&shared.closing, state, due, |state| state.closed).closed
}

/// Whether another look follows, because a master of the map does not answer.
fn goes_on(shared: &Shared) -> bool {
    let mut state = shared.state.lock();
    let (now, masters) = (Instant::now(), state.map.masters());
    state.refreshing.doubted.retain(|(member, until)| now < *until && masters.contains(member));
    state.refreshing.under_way = !state.refreshing.doubted.is_empty();
    state.refreshing.under_way
}

/// Looks at the map within `limit`. Fails when no member answers.
pub(super) fn look(shared: &Arc<Shared>, limit: Duration) -> Result<(), Fault> {
    let end = Instant::now().after(limit);
    let (mut best, mut failure): (Option<MemberView>, Option<Fault>) = (None, None);
    let (members, mut at_once) = begin(shared);
    let parts = u32::try_from(members.len() * 2).unwrap_or(u32::MAX).max(LEAST_PARTS);
    let patience = (shared.command_timeout / parts).clamp(LEAST_PATIENCE, MOST_PATIENCE);
    let mut members = members.into_iter();
    let (tell, answers) = mpsc::channel();
    let mut asked = 0;
    loop {
        let next = members.next();
        let until = if next.is_some() { end.min(Instant::now().after(patience)) } else { end };
        if let Some(member) = next {
            match ask(shared, member, end, tell.clone()) {
                Ok(()) => asked += 1,
                Err(fault) => failure = Some(fault),
            }
            if at_once > 0 {
                at_once -= 1;
                continue;
            }
        } else if asked == 0 {
            break;
        }
        let answer = answers.recv_timeout(Instant::now().until(until));
        asked -= i32::from(answer.is_ok());
        match answer {
            Ok(Ok((told, true))) => {
                best = Some(told);
                break;
            }
            Ok(Ok((told, false))) => {
                best = best.into_iter().chain([told]).max_by_key(|told| (told.is_well, told.epoch))
            }
            Ok(Err(fault)) => failure = Some(fault),
            Err(_) if Instant::now() >= end => break,
            Err(_) => {}
        }
    }
    // All members that answer have an older map, or they serve no requests, or the whole cluster was made anew.
    let none =
        || Fault::NotSent(at(&shared.label, "was not asked for the map of the cluster: no member was reached in time"));
    best.map(|told| accept(shared, &told)).ok_or_else(|| failure.unwrap_or_else(none))
}

/// Has a member asked for its map. It is told with whether it is trusted. A map that shares no node with the accepted
/// one is refused, unless a host of the URL tells it: there a new client would find it, too.
fn ask(
    shared: &Arc<Shared>,
    member: Arc<Server>,
    deadline: Instant,
    tell: mpsc::Sender<Result<(MemberView, bool), Fault>>,
) -> Result<(), Fault> {
    let shared = Arc::clone(shared);
    let work = move || {
        let judged = member_view::ask(&member, deadline).and_then(|told| {
            let mut state = shared.state.lock();
            state.refreshing.answered(member.number());
            if member.number().0 >= state.seeds && state.map.is_foreign(&told) {
                return Err(Fault::NotSent(foreign(&member.label())));
            }
            let is_trusted = state.map.trusts(&told);
            Ok((told, is_trusted))
        });
        // The look may be over.
        let _ = tell.send(judged);
    };
    let started = thread::Builder::new().name("lockson-map".into()).spawn(work);
    started.map(drop).map_err(|error| Fault::NotSent(no_thread("ask for the map of the cluster", error)))
}

/// Begins a look. Returns the members in the order of the questions, and how many are asked before any answer:
/// the doubted members, because an answer ends the doubt.
fn begin(shared: &Shared) -> (Vec<Arc<Server>>, usize) {
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
    seeds.retain(|seed| !members.contains(seed));
    let mut order = members;
    seeds.into_iter().enumerate().for_each(|(at, seed)| order.insert((2 * at + 1).min(order.len()), seed));
    order.sort_by_key(|member| !state.refreshing.doubts(*member));
    let doubted = order.partition_point(|member| state.refreshing.doubts(*member));
    (order.into_iter().filter_map(|number| state.servers.get(number.0).cloned()).collect(), doubted)
}

fn accept(shared: &Shared, told: &MemberView) {
    // A member that lost its place in the cluster knows no other one, and the hosts of the URL may be gone.
    if told.ranges.is_empty() {
        return;
    }
    let mut state = shared.state.lock();
    // A replica may be the only one to ask for the next map.
    let places = told.ranges.iter().flat_map(|range| iter::once(&range.master).chain(&range.replicas));
    let members: BTreeSet<_> = places.map(|place| state.number(place, shared)).collect();
    state.members = members.into_iter().collect();
    let super::State { map, numbers, servers, refreshing, .. } = &mut *state;
    map.accept(told, |place| numbers[place]);
    let masters = map.masters();
    let others = servers.iter().filter(|server| !masters.contains(&server.number()));
    let left: Vec<_> = others.map(|server| (Arc::clone(server), refreshing.doubts(server.number()))).collect();
    refreshing.doubted.retain(|(member, _)| masters.contains(member));
    for (place, id) in &told.ids {
        if let Some(number) = numbers.get(place) {
            *servers[number.0].dialer.node.lock() = Some(id.as_str().into());
        }
    }
    drop(state);
    // Closing connections takes calls of the system. For the answers of a mute server nothing waits any longer.
    for (server, is_mute) in left {
        server.pool.close_idle();
        if is_mute {
            server.dialer.streams.shut_down();
        }
    }
}

/// The shortest time between two looks.
const PAUSE: Duration = Duration::from_secs(1);
/// A member is waited for during one part of the time before the next one is asked as well. There are two parts for
/// each member, so that the last one has half of the time where all others are silent.
const LEAST_PARTS: u32 = 6;
const LEAST_PATIENCE: Duration = Duration::from_millis(50);
const MOST_PATIENCE: Duration = Duration::from_millis(500);
