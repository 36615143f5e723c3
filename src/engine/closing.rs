//! Closing a client: its holds and permits are given back, its requests end.

use std::sync::Arc;

use crate::conn::{Server, by_server, side_by_side};
use crate::engine::hold::HoldState;
use crate::engine::parts::Engine;
use crate::engine::sender::exactly_once;
use crate::error::Loss;
use crate::name::LockName;
use crate::state::exchange::{Bounds, InDoubt};
use crate::state::ledger::Phase;
use crate::system::thread;
use crate::time::Instant;

impl Engine {
    /// Stops new operations, ends all waits and holds, waits for running operations, and releases the locks, all
    /// within the drop time-out. Then closes the connections.
    pub(crate) fn close(&self) {
        if !self.life.close() {
            return;
        }
        self.sender.hurry();
        let end = Instant::now().after(self.config.drop_timeout);
        let permits = self.by_server(self.cells.taken.close(), |(name, ..)| name);
        // Several at once: each name is one round trip.
        let shares: Vec<_> =
            permits.iter().flat_map(|(_, share)| share.chunks(share.len().div_ceil(PERMITS_AT_ONCE))).collect();
        let give_back_permits = || drop(side_by_side(&shares, |share| self.give_back_all_permits(share, end)));
        let end = thread::scope(|scope| {
            // Permits come first, if possible on a thread of their own: what is not given back in time is lost, while
            // a hold expires.
            let close = || thread::Builder::new().name("lockson-close".into()).spawn_scoped(scope, give_back_permits);
            let closing = (!shares.is_empty()).then(close);
            if matches!(closing, Some(Err(_))) {
                give_back_permits();
            }
            // All losses are reported before the first release, because each release takes a request.
            let held = self.cells.registry.close().into_iter();
            let mut held: Vec<_> = held.filter_map(|hold| Some((self.end_hold(&hold)?, hold))).collect();
            // What is left of lost holds takes no time of the live ones.
            held.sort_by_key(|(was_lost, _)| *was_lost);
            let held: Vec<_> = held.into_iter().map(|(_, hold)| hold).collect();
            // A slow observer adds its time to that of the releases.
            let end = Instant::now().after(self.config.drop_timeout);
            let held = self.by_server(held, |hold| &hold.name);
            side_by_side(&held, |(_, holds)| self.give_back(holds, end));
            // A panic there must not keep the connections open.
            drop(closing.and_then(Result::ok).map(thread::ScopedJoinHandle::join));
            end
        });
        self.life.wait_for_others(self.own_operations(), end);
        self.sender.close(end);
        self.cells.close();
        self.keeper.close();
    }

    /// Ends one hold because the client closes. Returns whether the hold was lost before; `None` where nothing stands in
    /// Redis that its last guard cannot give back any more.
    fn end_hold(&self, hold: &HoldState) -> Option<bool> {
        let phase = self.keeper.with_ledger(hold, |ledger, now| {
            let phase = ledger.look(now);
            ledger.step(Phase::Live, Phase::Lost(Loss::Closed));
            phase
        });
        match phase {
            Phase::Live => Some(false),
            Phase::Lost(loss) => hold.may_be_left(loss).then_some(true),
            Phase::Releasing | Phase::Done => None,
        }
    }

    /// Sorts what a closing client has by server: a mute server must not take the time of the others.
    fn by_server<T>(&self, all: Vec<T>, name: impl Fn(&T) -> &LockName) -> Vec<(Arc<Server>, Vec<T>)> {
        by_server(all.into_iter().map(|one| (self.sender.server(name(&one)), one)))
    }

    /// Releases abandoned holds on one server, if possible by `end`. Locks that are not released in time expire.
    fn give_back(&self, holds: &[Arc<HoldState>], end: Instant) {
        let now = Instant::now();
        let left = now.until(end);
        if left.is_zero() {
            return;
        }
        let kept = |hold: &HoldState| self.keeper.with_ledger(hold, |ledger, now| ledger.kept_alone(now));
        let (parts, whole): (Vec<_>, Vec<_>) = holds.iter().partition(|hold| kept(hold).is_some());
        let calls: Vec<_> = whole.iter().map(|hold| hold.kind.release(&hold.name, &hold.owner, None)).collect();
        let send = |call| self.sender.outgoing(InDoubt::default(), call, Bounds::within(now, left, left));
        drop(exactly_once::send_all(calls.iter().map(send).collect(), None));
        // A hold of which a part stays is found by requests under way and by copies in doubt, which could prolong it.
        for hold in parts {
            let Ok(_turn) = hold.turn(end) else { continue };
            let now = Instant::now();
            let (left, call) = (now.until(end), hold.kind.release(&hold.name, &hold.owner, kept(hold)));
            drop(self.sender.send_after(hold.take_in_doubt(), &call, Bounds::within(now, left, left), None));
        }
    }

    /// Gives back permits, because the client closes. What is not given back by `end` is lost.
    fn give_back_all_permits(&self, permits: &[(LockName, i64)], end: Instant) {
        for (name, permits) in permits {
            let left = Instant::now().until(end);
            if left.is_zero() {
                return;
            }
            let _ = self.give_back_permits(name, *permits, left);
        }
    }
}

/// The names of one server whose permits are given back at the same time.
const PERMITS_AT_ONCE: usize = 8;
