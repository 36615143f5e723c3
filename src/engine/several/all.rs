//! All of several locks: the rounds of `state/rounds.rs`, done.

use crate::engine::acquire::acquisition::Acquisition;
use crate::engine::parts::Engine;
use crate::engine::request::{AcquireRequest, Grant, Wait};
use crate::engine::several::asking::{self, Reply};
use crate::engine::several::giving_back::extend_at_once;
use crate::engine::several::{LONGEST_FAREWELL, Take};
use crate::error::{Error, Result};
use crate::kinds::Queueing;
use crate::state::exchange::Bounds;
use crate::state::ledger::Phase;
use crate::state::rounds::{Rounds, Step};
use crate::system::random;
use crate::time::{Deadline, Instant, Lease};

/// One take of all of several locks. Dropping the value gives the locks back.
pub(super) struct All<'a> {
    take: Take<'a>,
    /// Whether the calling thread held the lock before this take.
    reentered: Vec<bool>,
    rounds: Rounds,
    /// The last error of a server that did not answer in this round.
    trouble: Option<Error>,
}

impl<'a> All<'a> {
    pub(super) fn new(take: Take<'a>) -> Self {
        Self {
            reentered: vec![false; take.requests.len()],
            rounds: Rounds::new(take.requests.len()),
            trouble: None,
            take,
        }
    }

    /// Takes all locks, or none.
    pub(super) fn run(mut self) -> Result<Option<Vec<Option<Grant>>>> {
        self.reenter()?;
        loop {
            match self.rounds.next(random) {
                Step::AskRest => {
                    if self.take.wait != Wait::Not && self.take.grants.iter().all(Option::is_none) {
                        self.take.stand_back()?;
                    }
                    self.ask_rest()?;
                }
                Step::GiveBack { pause } => {
                    self.give_back();
                    if self.is_over() {
                        return self.trouble.take().map_or(Ok(None), Err);
                    }
                    self.rounds.given_back();
                    for place in (0..self.take.requests.len()).filter(|place| self.reentered[*place]) {
                        self.rounds.granted(place);
                    }
                    self.take.caller.check()?;
                    if !pause.is_zero() {
                        self.take.caller.sleep(self.take.wait.deadline().sooner(Instant::now().after(pause)))?;
                    }
                }
                Step::Wait(place) => {
                    let began = Instant::now();
                    if !self.wait_for(place, self.take.acquisition(place, self.take.wait))?
                        && self.take.wait != Wait::FOR_EVER
                    {
                        return Ok(None);
                    }
                    self.rounds.waited(place, began.until(Instant::now()));
                }
                // The answers came late, and one more question could take another time-out.
                Step::WaitHolding(..) if self.is_over() => return self.trouble.take().map_or(Ok(None), Err),
                Step::WaitHolding(place, most) => {
                    let until = self.take.wait.deadline().sooner(Instant::now().after(most));
                    let acquisition = self.take.acquisition(place, Wait::Until(Deadline::At(until)));
                    let granted = match self.wait_for(place, acquisition.holding()) {
                        // A wait without parts has the time of the caller to outlast an outage.
                        Err(error) if error.is_outage() && !self.is_over() && !self.was_mute_for_long(place) => {
                            self.rounds.silent(place);
                            self.trouble = Some(error);
                            false
                        }
                        outcome => outcome?,
                    };
                    if !granted && self.is_over() {
                        return Ok(None);
                    }
                }
                Step::Check => {
                    if self.check()? {
                        return Ok(Some(self.take.granted()));
                    }
                }
            }
        }
    }

    /// Whether the time is up.
    fn is_over(&self) -> bool {
        self.take.wait == Wait::Not || self.take.wait.deadline().passed(Instant::now())
    }

    /// Whether the server of this lock was mute for so long that a call without limit ends.
    fn was_mute_for_long(&self, place: usize) -> bool {
        let AcquireRequest { engine, name, .. } = self.take.requests[place];
        let ends = engine.sender.outage_ends(engine.sender.node(name), self.take.began);
        self.take.wait == Wait::FOR_EVER && ends.is_some_and(|end| end <= Instant::now())
    }

    /// Re-enters the locks that the calling thread holds. A lost lock fails the take: an outer section believes in it.
    fn reenter(&mut self) -> Result<()> {
        for (place, request) in self.take.requests.iter().enumerate() {
            let engine = request.engine;
            if let Some(hold) = request.held_by(self.take.thread.as_ref()) {
                let bounds = engine.sender.bounds_of_call(request.name, self.take.wait.deadline());
                let grant = engine.reenter(request, &hold, self.take.caller, bounds.ended_by(self.take.end));
                self.granted(place, grant.map_err(|error| error.about(request.name))?);
                self.reentered[place] = true;
            }
        }
        Ok(())
    }

    /// Asks once for every missing lock.
    fn ask_rest(&mut self) -> Result<()> {
        self.take.caller.check()?;
        let is_missing = |place: &usize| self.take.grants[*place].is_none();
        let missing: Vec<usize> = (0..self.take.requests.len()).filter(is_missing).collect();
        self.trouble = None;
        if self.take.end.is_some_and(|end| Instant::now() >= end) {
            // The process was stopped. A lock that cannot be asked for in time is no outage.
            missing.iter().for_each(|place| self.rounds.busy(*place));
            return Ok(());
        }
        // Who holds nothing joins the line of the threads of this process, and does not ask ahead of it.
        if !self.is_over() && self.take.grants.iter().all(Option::is_none) {
            let waits = |place: &&usize| {
                let AcquireRequest { engine, name, kind, .. } = self.take.requests[**place];
                kind.queueing() == Queueing::Line && engine.cells.local_queues.has(name)
            };
            if let Some(place) = missing.iter().find(waits) {
                self.rounds.busy(*place);
                return Ok(());
            }
        }
        let asking = missing.iter().map(|place| self.take.acquisition(*place, Wait::Not)).collect();
        let end = self.take.end;
        let replies = asking::ask_at_once(asking, self.take.caller, |_, bounds| bounds.ended_by(end));
        let mut failed = None;
        for (place, heard) in missing.into_iter().zip(replies) {
            match heard.reply {
                Ok(Reply::Granted(grant)) => self.granted(place, grant),
                Ok(Reply::Busy(_)) => self.rounds.busy(place),
                Ok(Reply::Passed) => self.rounds.passed(place),
                // The wait for this lock alone asks on, and tells why it ends.
                Err(error) if error.is_outage() && !self.is_over() => {
                    self.rounds.silent(place);
                    self.trouble = Some(error);
                }
                Err(error) => failed = failed.or(Some(error)),
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Waits for one lock. Returns whether it was granted.
    fn wait_for(&mut self, place: usize, acquisition: Acquisition<'a>) -> Result<bool> {
        let grant = acquisition.run()?;
        let is_granted = grant.is_some();
        match grant {
            Some(grant) => self.granted(place, grant),
            None => self.rounds.busy(place),
        }
        Ok(is_granted)
    }

    /// Looks at all locks at one moment, and extends those with less than half of their lease. Returns whether all are
    /// held for that long.
    fn check(&mut self) -> Result<bool> {
        let Some(short) = self.look()? else { return Ok(false) };
        if short.is_empty() {
            return Ok(true);
        }
        let of_guard = |(place, lease): &(usize, Lease)| {
            let (hold, number) = self.take.grants[*place].as_ref()?;
            Some((self.take.requests[*place].engine, hold, (*lease, Some(*number))))
        };
        let holds: Vec<_> = short.iter().filter_map(of_guard).collect();
        let end = self.take.end;
        let extended = extend_at_once(&holds, |engine| limit(engine, end));
        // A lock that was lost meanwhile is found by the next look.
        let failed = extended.into_iter().filter_map(Result::err).find(|error| !error.is_lost());
        failed.map_or(Ok(()), Err)?;
        for (place, _) in self.look()?.into_iter().flatten() {
            // The answers take longer than half of the lease.
            self.rounds.passed(place);
        }
        Ok(false)
    }

    /// Looks at all locks at one moment. Returns those with less than half of their lease left; `None` if a lock is
    /// lost.
    fn look(&mut self) -> Result<Option<Vec<(usize, Lease)>>> {
        let now = Instant::now();
        let (mut short, mut is_lost) = (vec![], false);
        for (place, (request, grant)) in self.take.requests.iter().zip(&self.take.grants).enumerate() {
            let Some((hold, _)) = grant else { continue };
            let AcquireRequest { engine, lease, .. } = *request;
            // A hold that is live later was live at `now`, too.
            let (phase, left) =
                engine.keeper.with_ledger(hold, |ledger, later| (ledger.look(later), now.until(ledger.good_until)));
            match phase {
                Phase::Live if left < lease.duration() / 2 => short.push((place, lease)),
                Phase::Live => {}
                Phase::Lost(loss) if self.reentered[place] => {
                    return Err(engine.keeper.lost(hold, loss).about(request.name));
                }
                Phase::Lost(_) | Phase::Releasing | Phase::Done => {
                    self.rounds.passed(place);
                    is_lost = true;
                }
            }
        }
        Ok((!is_lost).then_some(short))
    }

    /// Gives back what this take holds, but for re-entered locks while the take goes on: their outer sections hold
    /// them in any case.
    fn give_back(&mut self) {
        let end = self.take.end;
        self.take.give_back(|place| !self.reentered[place], |engine| limit(engine, end));
    }

    fn granted(&mut self, place: usize, grant: Grant) {
        self.take.grants[place] = Some(grant);
        self.rounds.granted(place);
    }
}

/// The bounds of what a call does besides taking: the rest of its time, or a moment.
fn limit(engine: &Engine, end: Option<Instant>) -> Bounds {
    let now = Instant::now();
    let patience = engine.config.command_timeout;
    let limit = end.map_or(patience, |end| patience.min(now.until(end).max(LONGEST_FAREWELL)));
    Bounds::within(now, limit, limit)
}

impl Drop for All<'_> {
    /// Also after a panic in the back-off of the caller.
    fn drop(&mut self) {
        let end = self.take.end;
        self.take.give_back(|_| true, |engine| limit(engine, end));
    }
}
