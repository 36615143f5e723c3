//! A thread waits while other processes have their turn, by one rule for every kind.

use std::time::Duration;

use crate::engine::parts::Engine;
use crate::error::Result;
use crate::kinds::{Kind, Queueing};
use crate::name::LockName;
use crate::state::exchange::Bounds;
use crate::state::stand_back::Turn;
use crate::time::{Deadline, Instant};

/// A lock that a caller wants; `None` for a semaphore, which is no lock.
pub(crate) type Wanted<'a> = (&'a Engine, &'a LockName, Option<&'a dyn Kind>);

/// Waits while other processes have their turn at any of these locks: for the longest of the pauses, but not beyond
/// `deadline`. The caller holds none of the locks.
pub(crate) fn stand_back<'a>(
    wanted: impl Iterator<Item = Wanted<'a>> + Clone,
    deadline: Deadline,
    mut sleep: impl FnMut(Instant) -> Result<()>,
) -> Result<()> {
    let shared = wanted.filter(|(_, _, kind)| kind.is_none_or(Kind::stands_back));
    loop {
        let pauses = shared
            .clone()
            .filter_map(|one @ (engine, name, _)| Some((engine.cells.stand_backs.with(name, Turn::pause)??, one)));
        let Some((pause, (engine, name, kind))) = pauses.max_by_key(|(pause, _)| (pause.looks, pause.until)) else {
            return Ok(());
        };
        let now = Instant::now();
        if deadline.passed(now) {
            return Ok(());
        }
        if !pause.looks || !engine.looks(name, kind, now, deadline) {
            sleep(deadline.sooner(pause.until))?;
        }
    }
}

impl Engine {
    /// Checks the owner of the lock, to count the threads of other processes that want it. Returns `false` if no time
    /// is left for the check.
    fn looks(&self, name: &LockName, kind: Option<&dyn Kind>, now: Instant, deadline: Deadline) -> bool {
        // A connection that fell silent must not use up the wait for a lock that is free by then.
        let limit = now.until(deadline.sooner(now.after(self.config.command_timeout / PARTS_OF_A_LOOK)));
        if limit < SHORTEST_LOOK {
            return false;
        }
        // The owners of permits do not tell their threads.
        let kind = kind.filter(|kind| !matches!(kind.queueing(), Queueing::Counted(_)));
        let answer = kind.map(|kind| {
            let node = self.sender.node(name);
            node.asking_begins(now);
            let bounds = Bounds { fences: false, ..Bounds::once(now, limit) };
            let answer = self.sender.send(&kind.holder(name), bounds, None);
            node.asking_ends_with(answer.as_ref().err().map(|failed| &failed.error));
            answer
        });
        self.cells.stand_backs.with(name, |turn, _, answered| match answer {
            Some(Ok(answer)) => {
                let owner = answer.value.ok().flatten().map(|(owner, _)| owner);
                let owner = owner.filter(|owner| !owner.starts_with(self.owners.client()));
                turn.looked(owner.as_deref(), now, answered);
            }
            _ => turn.cannot_look(answered),
        });
        true
    }
}

/// With less time left, the owner of the lock is not worth a request.
const SHORTEST_LOOK: Duration = Duration::from_millis(100);
/// A look gets as much of `command_timeout` as one attempt gets at least.
const PARTS_OF_A_LOOK: u32 = 3;
