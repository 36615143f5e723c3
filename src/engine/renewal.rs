//! Which holds are renewed when, and what the answers mean for them; decides, and leaves the doing to others.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::holds::hold::HoldState;
use crate::error::{Error, ErrorKind};
use crate::owner::ThreadId;
use crate::script::{Renewal, RenewalAnswer, RenewalAnswers};
use crate::state::clocks::{Clocks, Pace};
use crate::state::ledger::{Ledger, Phase};
use crate::state::watch::All;
use crate::time::{Instant, Lease};

/// What a round needs from its surroundings; tests drive it with a model of a server on virtual time.
pub(super) trait Upkeep {
    /// The holds of this server.
    fn holds(&self) -> Vec<Arc<HoldState>>;

    /// Holds that came into question since the round began.
    fn urgent(&mut self) -> Vec<Arc<HoldState>>;

    /// Uses a ledger under its mutex; a loss that comes to light by that is told.
    fn with<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T;

    /// The thread of this hold has ended: where it did not give it back, it is left to its time to live.
    fn abandon(&self, hold: &Arc<HoldState>);

    /// Renews all of these with one request, at least one.
    fn renew(&mut self, batch: &[&Due], deadline: Instant) -> Result<RenewalAnswers, Error>;

    /// Asks once whether these are still there, at least one.
    fn look(&mut self, batch: &[&Due], deadline: Instant) -> Result<Vec<RenewalAnswer>, Error>;

    /// The deadline of this hold was put off.
    fn renewed(&self, hold: &Arc<HoldState>);

    /// So many locks could not be renewed; the first of them is held for `remaining` yet.
    fn failed(&self, locks: usize, remaining: Duration, error: Error);

    /// So many locks were renewed in this round.
    fn renewed_in_round(&self, locks: usize);

    /// Nothing failed in this round; renewals had failed for so long.
    fn recovered(&self, outage: Duration);
}

/// What a round is to see to beside what is due by the clock.
#[derive(Debug, Default)]
pub(super) struct Asked {
    /// All holds came into question.
    pub(super) all: Option<All>,
    /// These did.
    pub(super) holds: Vec<Arc<HoldState>>,
}

/// A hold whose turn it is.
pub(super) struct Due {
    pub(super) hold: Arc<HoldState>,
    what: What,
    /// Its deadline when it was looked at.
    good_until: Instant,
}

/// What its turn is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Renew(Lease),
    Look,
}

/// The rounds over the holds of one server.
#[derive(Debug)]
pub(super) struct Rounds {
    grid: Grid,
    clocks: Clocks,
    /// How many locks one request renews.
    batch: usize,
    command_timeout: Duration,
    /// When the first request was sent of those that failed since all was well.
    failing_since: Option<Instant>,
    /// Those whose last request failed.
    retrying: Vec<Weak<HoldState>>,
    /// How long this round has waited for requests that failed.
    in_vain: Duration,
    tally: Tally,
}

/// What came of the renewals of one round.
#[derive(Debug, Default)]
struct Tally {
    renewed: usize,
    /// When the first request was sent that failed.
    failed: Option<Instant>,
}

impl Rounds {
    pub(super) fn new(now: Instant, interval: Duration, batch: usize, command_timeout: Duration) -> Self {
        let grid = Grid { next: now.after(interval), interval };
        Self {
            grid,
            clocks: Clocks::new(interval),
            batch,
            command_timeout,
            failing_since: None,
            retrying: vec![],
            in_vain: Duration::ZERO,
            tally: Tally::default(),
        }
    }

    /// When everything is renewed next.
    pub(super) fn next_tick(&self) -> Instant {
        self.grid.next
    }

    /// Renews what is due, and looks at what is asked for. Says when to come again.
    pub(super) fn round(&mut self, upkeep: &mut impl Upkeep, asked: &Asked) -> Instant {
        self.in_vain = Duration::ZERO;
        let tick = self.grid.tick(Instant::now());
        let retrying: Vec<_> = std::mem::take(&mut self.retrying).iter().filter_map(Weak::upgrade).collect();
        let all = if tick || asked.all.is_some() { upkeep.holds() } else { vec![] };
        let renewing = tick || asked.all == Some(All::Renew);
        let mut seen = HashSet::new();
        let mut due = vec![];
        let named = asked.holds.iter().map(|hold| (hold, true));
        let others = all.iter().chain(&retrying).map(|hold| (hold, asked.all.is_some()));
        // At a tick alone, none comes twice.
        let twice = !(asked.holds.is_empty() && retrying.is_empty());
        for (hold, asked) in named.chain(others) {
            if (!twice || seen.insert(hold.number)) && !is_abandoned(upkeep, hold) {
                due.extend(turn(upkeep, hold, renewing, asked));
            }
        }
        self.send(upkeep, due);
        self.tell(upkeep);
        self.retrying.extend(retrying.iter().map(Arc::downgrade));
        self.next_round(upkeep)
    }

    /// When to come again: soon for those whose request failed, else at the next tick.
    fn next_round(&mut self, upkeep: &impl Upkeep) -> Instant {
        let mut next = self.grid.next;
        let mut seen = HashSet::new();
        self.retrying.retain(|hold| {
            let is_new = |hold: &Arc<HoldState>| !has_nobody(hold) && seen.insert(hold.number);
            let Some(hold) = hold.upgrade().filter(is_new) else { return false };
            let look = upkeep.with(&hold, next_look);
            next = look.map_or(next, |look| next.min(look));
            look.is_some()
        });
        next
    }

    /// Sends batch after batch. What comes into question meanwhile does not wait for the last of them.
    fn send(&mut self, upkeep: &mut impl Upkeep, due: Vec<Due>) {
        for batch in self.in_batches(due) {
            let urgent = upkeep.urgent();
            let urgent = urgent.iter().filter_map(|hold| look_at(upkeep, hold)).collect();
            for batch in self.in_batches(urgent) {
                self.send_batch(upkeep, &batch);
            }
            self.send_batch(upkeep, &batch);
        }
    }

    /// Looks first, since they are short and somebody may be in two minds; then those that end first.
    fn in_batches(&self, mut due: Vec<Due>) -> Vec<Vec<Due>> {
        due.sort_by_key(|due| due.good_until);
        let mut by_kind: HashMap<(bool, &'static str), Vec<Vec<Due>>> = HashMap::new();
        for due in due {
            let renews = due.what != What::Look;
            let most = if renews { self.batch } else { LOOKS_AT_ONCE };
            let batches = by_kind.entry((renews, due.hold.kind.family())).or_default();
            match batches.last_mut() {
                Some(batch) if batch.len() < most => batch.push(due),
                _ => batches.push(vec![due]),
            }
        }
        let mut batches: Vec<_> = by_kind
            .into_iter()
            .flat_map(|((renews, _), batches)| {
                batches.into_iter().map(move |batch| ((renews, batch[0].good_until), batch))
            })
            .collect();
        batches.sort_by_key(|(order, _)| *order);
        batches.into_iter().map(|(_, batch)| batch).collect()
    }

    fn send_batch(&mut self, upkeep: &mut impl Upkeep, batch: &[Due]) {
        // What was given back while the batches before this one were under way is left out.
        let wanted = |due: &&Due| upkeep.with(&due.hold, |ledger, now| is_still_due(ledger, now, due.what));
        let batch: Vec<&Due> = batch.iter().filter(wanted).collect();
        if batch.is_empty() {
            return;
        }
        // One mute server costs one time-out a round, however many batches wait.
        if self.in_vain >= self.command_timeout {
            self.put_off(upkeep, &batch);
            return;
        }
        let started = Instant::now();
        if let Err(error) = self.ask(upkeep, &batch) {
            self.in_vain += started.until(Instant::now());
            if batch[0].what == What::Look && error.is_final_refusal() {
                batch.iter().for_each(|due| upkeep.with(&due.hold, Ledger::looked));
            } else {
                self.put_off(upkeep, &batch);
            }
            if batch[0].what != What::Look {
                self.tally.failed.get_or_insert(started);
            }
            upkeep.failed(batch.len(), batch[0].remaining(), error);
        }
    }

    fn tell(&mut self, upkeep: &impl Upkeep) {
        let Tally { renewed, failed } = std::mem::take(&mut self.tally);
        if renewed > 0 {
            upkeep.renewed_in_round(renewed);
        }
        if let Some(failed) = failed {
            self.failing_since.get_or_insert(failed);
        } else if renewed > 0
            && let Some(since) = self.failing_since.take()
        {
            upkeep.recovered(since.until(Instant::now()));
        }
    }

    fn ask(&mut self, upkeep: &mut impl Upkeep, batch: &[&Due]) -> Result<(), Error> {
        let sent = Instant::now();
        // A mute server must not keep us from trying again before the first of them ends, and a look not from
        // renewing others in time.
        let end =
            if batch[0].what == What::Look { batch[0].good_until.min(self.grid.next) } else { batch[0].good_until };
        let deadline = sent.after(self.command_timeout).min(end.max(sent.after(SHORTEST_ASK)));
        let (server_time_ms, answers) = if batch[0].what == What::Look {
            (None, upkeep.look(batch, deadline)?)
        } else {
            let RenewalAnswers { server_time_ms, answers } = upkeep.renew(batch, deadline)?;
            (Some(server_time_ms), answers)
        };
        if answers.len() != batch.len() {
            return Err(Error::new(ErrorKind::Unknown, "the answer was for another number of locks"));
        }
        let pace = server_time_ms.map_or_else(Pace::default, |time_ms| self.clocks.read(sent, Instant::now(), time_ms));
        self.take_answers(upkeep, batch, answers, sent, pace);
        Ok(())
    }

    fn take_answers(
        &mut self,
        upkeep: &impl Upkeep,
        batch: &[&Due],
        answers: Vec<RenewalAnswer>,
        sent: Instant,
        pace: Pace,
    ) {
        let mut refusals = vec![];
        for (&due, answer) in batch.iter().zip(answers) {
            let hold = &due.hold;
            match (answer, due.what) {
                (RenewalAnswer::Renewed, What::Renew(lease)) => {
                    upkeep.with(hold, |ledger, _| {
                        ledger.renewed(sent, lease);
                        ledger.server_goes(sent, pace);
                    });
                    upkeep.renewed(hold);
                    self.tally.renewed += 1;
                }
                (RenewalAnswer::Renewed, What::Look) => upkeep.with(hold, Ledger::looked),
                (RenewalAnswer::Lost(loss), _) => upkeep.with(hold, |ledger, _| ledger.lose(loss)),
                (RenewalAnswer::Refused(refusal), what) => {
                    if what == What::Look && !refusal.is_transient() {
                        upkeep.with(hold, Ledger::looked);
                    } else {
                        self.put_off(upkeep, &[due]);
                    }
                    refusals.push((refusal, due.remaining()));
                }
            }
        }
        // Those that end first come first.
        if let Some((refusal, remaining)) = refusals.first() {
            if batch[0].what != What::Look {
                self.tally.failed.get_or_insert(sent);
            }
            upkeep.failed(refusals.len(), *remaining, Error::refused(refusal.clone()));
        }
    }

    /// An unknown answer is no loss: it is asked again soon, until the hold's own deadline.
    fn put_off(&mut self, upkeep: &impl Upkeep, batch: &[&Due]) {
        for due in batch {
            let pause = match due.what {
                What::Renew(lease) => (lease.duration() / 30).clamp(SHORTEST_RETRY, LONGEST_RETRY),
                What::Look => PAUSE_OF_A_LOOK,
            };
            upkeep.with(&due.hold, |ledger, now| ledger.renewal_failed(now.after(pause)));
            self.retrying.push(Arc::downgrade(&due.hold));
        }
    }
}

impl Due {
    fn remaining(&self) -> Duration {
        Instant::now().until(self.good_until)
    }

    /// What is asked of Redis now, where it is to be renewed.
    pub(super) fn renewal(&self, upkeep: &impl Upkeep) -> Option<Renewal> {
        let What::Renew(lease) = self.what else { return None };
        let raise = upkeep.with(&self.hold, |ledger, now| ledger.raise(now, lease));
        Some(Renewal { name: self.hold.name.clone(), owner: self.hold.owner.clone(), raise })
    }
}

/// The grid: ticks are `interval` apart whatever a round takes.
#[derive(Debug)]
struct Grid {
    next: Instant,
    interval: Duration,
}

impl Grid {
    /// Whether a tick has come; then the next one is the first that has not.
    fn tick(&mut self, now: Instant) -> bool {
        let tick = now >= self.next;
        while self.next <= now {
            self.next = self.next.after(self.interval);
        }
        tick
    }
}

/// Whether nobody can give it back any more; then it is left to its time to live.
fn is_abandoned(upkeep: &impl Upkeep, hold: &Arc<HoldState>) -> bool {
    let ended = has_nobody(hold);
    if ended {
        upkeep.abandon(hold);
    }
    ended
}

/// Whether its thread has ended.
fn has_nobody(hold: &HoldState) -> bool {
    hold.thread.as_ref().is_some_and(ThreadId::has_ended)
}

/// What it is this hold's turn for, if it is. A lease is never renewed, but it can be looked at.
fn turn(upkeep: &impl Upkeep, hold: &Arc<HoldState>, renewing: bool, asked: bool) -> Option<Due> {
    let (what, good_until) = upkeep.with(hold, |ledger, now| {
        let retry = ledger.retry_at().is_some_and(|at| at <= now);
        let lease = if renewing || retry { ledger.renewal(now) } else { None };
        let looks = (asked || retry) && ledger.look(now) == Phase::Live;
        let what = lease.map(What::Renew).or_else(|| looks.then_some(What::Look));
        Some((what?, ledger.good_until()))
    })?;
    Some(Due { hold: Arc::clone(hold), what, good_until })
}

/// A look at this hold, if it is live.
fn look_at(upkeep: &impl Upkeep, hold: &Arc<HoldState>) -> Option<Due> {
    let live = |ledger: &mut Ledger, now| (ledger.look(now) == Phase::Live).then(|| ledger.good_until());
    Some(Due { hold: Arc::clone(hold), what: What::Look, good_until: upkeep.with(hold, live)? })
}

/// Whether this is still what to do about it.
fn is_still_due(ledger: &mut Ledger, now: Instant, what: What) -> bool {
    match what {
        What::Renew(lease) => ledger.renewal(now) == Some(lease),
        What::Look => ledger.look(now) == Phase::Live,
    }
}

/// When a hold whose request failed is looked at again: soon, at the latest when its deadline comes.
fn next_look(ledger: &mut Ledger, now: Instant) -> Option<Instant> {
    let live = ledger.look(now) == Phase::Live;
    ledger.retry_at().filter(|_| live).map(|at| at.min(ledger.good_until()))
}

/// A batch whose first hold is about to end is asked about all the same, for the sake of the others.
const SHORTEST_ASK: Duration = Duration::from_millis(50);
const SHORTEST_RETRY: Duration = Duration::from_millis(50);
const LONGEST_RETRY: Duration = Duration::from_secs(1);
const PAUSE_OF_A_LOOK: Duration = Duration::from_millis(500);
/// Plain commands that are sent together: the server may do others' in between.
const LOOKS_AT_ONCE: usize = 500;

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;
