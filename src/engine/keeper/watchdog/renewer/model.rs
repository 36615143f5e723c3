//! A server, its network and the users of a few locks, in virtual time.
#![cfg(test)]

mod users;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;

use super::*;
use crate::engine::cells::registry::Registry;
use crate::error::{ErrorKind, Loss, Refusal};
use crate::name::LockName;
use crate::state::ledger::{GuardNumber, Phase};
use crate::state::renewal::MOST_BATCHES_AT_ONCE;
use crate::time::Lease;
use crate::transport::Fault;

pub(super) const START: Instant = Instant::from_millis(1_000_000);

const NEVER: Instant = Instant::from_millis(u64::MAX);

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn lease(millis: u64) -> Lease {
    Lease::new(ms(millis)).unwrap()
}

/// The plan of a run: the events, and the behaviour of server and network.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) lease_ms: u64,
    pub(super) timeout_ms: u64,
    pub(super) batch: usize,
    /// The number of slots that the locks are spread over.
    pub(super) slots: usize,
    /// Whether the server that a slot moves to never answers.
    pub(super) hangs_elsewhere: bool,
    /// The lead of the clock of the server, in millionths.
    pub(super) drift: i64,
    pub(super) acts: Vec<(u64, Act)>,
    /// The fate of each request; later requests are answered at once.
    pub(super) fates: Vec<Fate>,
    /// The time that a reply takes longer for each renewed lock.
    pub(super) each_ms: u64,
}

#[derive(Clone, Debug)]
pub(super) enum Act {
    Acquire {
        leased_ms: Option<u64>,
    },
    Reenter {
        which: usize,
        leased_ms: Option<u64>,
    },
    Release {
        which: usize,
        guard: usize,
        to_ms: u64,
        back_ms: u64,
    },
    Delete {
        which: usize,
    },
    Take {
        which: usize,
    },
    /// Another client removed the expiry of the key.
    Persist {
        which: usize,
    },
    /// Another client published about the lock.
    Check {
        which: usize,
    },
    /// The data of the server may have been flushed, or a connection broke.
    CheckAll {
        all: AllHolds,
    },
    /// The clock of the server is set forward.
    Step {
        by_ms: u64,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// Runs after `to_ms`, answered after `back_ms` more: perhaps too late.
    Answered {
        to_ms: u64,
        back_ms: u64,
    },
    NeverArrives,
    Refused {
        after_ms: u64,
    },
    OneRefused {
        which: usize,
    },
    /// The slot is on its way to another server.
    Moving,
    /// The slot has moved, and the way there is not known.
    Moved,
    /// The reply is for another number of locks.
    Garbled,
    NotSent,
}

impl Fate {
    /// Whether all requests of a write share the fate.
    fn is_of_all(&self) -> bool {
        matches!(self, Self::Answered { .. } | Self::NeverArrives | Self::NotSent)
    }
}

enum Effect {
    Act(Act),
    /// A renewal runs after its sender stopped waiting.
    Renew(Vec<(usize, Option<Lease>)>),
    Lower {
        which: usize,
        lease: Lease,
    },
    Lowered {
        which: usize,
    },
    Open {
        which: usize,
    },
    Opened {
        which: usize,
    },
}

struct Key {
    /// The expiry of the key; [`NEVER`] without one.
    ends: Instant,
    ours: bool,
    /// Whether the clock of the server was set forward since the renewal, so that the holder cannot know.
    stepped: bool,
}

pub(super) struct Held {
    pub(super) hold: Arc<HoldState>,
    /// The guards, and whether each of them is renewed.
    guards: Vec<(GuardNumber, bool)>,
    key: Key,
    /// Whether another client deleted or took the key, so that the holder cannot know.
    stolen: bool,
    /// Whether a request of the owner is in flight; there is one at a time.
    busy: bool,
    /// The end of a promised lease that no request has changed since.
    promised: Option<Instant>,
    ended: Option<Phase>,
    pub(super) asked: bool,
    pub(super) confirmed: bool,
    pub(super) renewed: bool,
    /// Whether the hold was to be renewed instead of checked.
    pub(super) tried: bool,
    /// Whether the server reported the loss.
    pub(super) disowned: bool,
    /// The time of a failed renewal that no later one made good.
    pub(super) failed: Option<Instant>,
}

pub(super) struct World {
    plan: Plan,
    pub(super) held: Vec<Held>,
    registry: Registry,
    told: RefCell<Vec<usize>>,
    /// Whether a renewal failed without a reported recovery since.
    failing: Cell<bool>,
    agenda: BTreeMap<(Instant, usize), Effect>,
    planned: usize,
    fates: std::vec::IntoIter<Fate>,
    pub(super) notes: Vec<LockName>,
    /// Whether a round waits for a reply.
    asking: bool,
    /// The earliest deadline of the last batch of this round.
    pub(super) asked_until: Instant,
    /// Whether a hold ended, or lost a guard, since the start of the round. Batches are ordered at the start, so a
    /// batch without its first hold may come before a batch with an earlier deadline.
    pub(super) thinned: bool,
    /// The request about all holds.
    pub(super) all: Option<AllHolds>,
    /// The time that this round waited for failed requests.
    pub(super) vain: Duration,
    /// The time that this round waited for failed requests at the server that the slot moves to.
    pub(super) vain_elsewhere: Duration,
    /// Whether the round asks the other server by now.
    pub(super) is_elsewhere: bool,
    /// Whether the last request was a check.
    looks: bool,
}

impl World {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut world = Self {
            plan: plan.clone(),
            held: vec![],
            registry: Registry::default(),
            told: RefCell::default(),
            failing: Cell::default(),
            agenda: BTreeMap::new(),
            planned: 0,
            fates: plan.fates.clone().into_iter(),
            notes: vec![],
            asking: false,
            asked_until: START,
            thinned: false,
            all: None,
            vain: Duration::ZERO,
            vain_elsewhere: Duration::ZERO,
            is_elsewhere: false,
            looks: false,
        };
        for (at, act) in plan.acts.clone() {
            world.at(START.after(ms(at)), Effect::Act(act));
        }
        world
    }

    fn at(&mut self, at: Instant, effect: Effect) {
        self.planned += 1;
        self.agenda.insert((at, self.planned), effect);
    }

    /// Lets time pass until `to`, or until an event for the watchdog.
    pub(super) fn idle_until(&mut self, to: Instant) {
        while self.notes.is_empty() && self.all.is_none() && self.step(to) {}
    }

    fn pass_until(&mut self, to: Instant) {
        while self.step(to) {}
    }

    /// Moves to the next event; `false` when `to` has come.
    fn step(&mut self, to: Instant) -> bool {
        let next = self.agenda.keys().next().map(|(at, _)| *at);
        // Every hold is checked at its deadline, as the timer does.
        let deadlines = self.held.iter().filter(|held| held.ended.is_none()).map(|held| held.good_until());
        let stop = next.into_iter().chain(deadlines).chain([to]).min().unwrap().max(Instant::now());
        stop.comes();
        let done = stop >= to && next.is_none_or(|next| next > to);
        if let Some(entry) = self.agenda.first_entry()
            && entry.key().0 <= stop
        {
            let effect = entry.remove();
            self.apply(effect);
        }
        self.check();
        !done
    }

    fn apply(&mut self, effect: Effect) {
        let now = Instant::now();
        match effect {
            Effect::Act(act) => self.act(act),
            Effect::Renew(locks) => {
                for (which, lease) in locks {
                    self.carry_out(which, lease);
                }
            }
            Effect::Lower { which, lease } => {
                let ends = self.ends(now, lease);
                let key = &mut self.held[which].key;
                if key.ours && key.ends > now {
                    key.ends = ends;
                }
            }
            Effect::Lowered { which } => {
                self.held[which].busy = false;
                self.use_ledger(which, |ledger, now| ledger.cut_is_over(now));
            }
            Effect::Open { which } => self.held[which].key.ends = now,
            Effect::Opened { which } => self.use_ledger(which, |ledger, _| ledger.step(Phase::Releasing, Phase::Done)),
        }
    }

    fn use_ledger<T>(&self, which: usize, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        self.with_ledger(&self.held[which].hold, use_ledger)
    }

    pub(super) fn set_clock_forward(&mut self, by: Duration) {
        for held in &mut self.held {
            if held.key.ends != NEVER {
                held.key.ends = held.key.ends.before(by);
            }
            held.key.stepped = true;
        }
    }

    /// The expiry, by the local clock, of a key whose time to live starts now.
    fn ends(&self, now: Instant, lease: Lease) -> Instant {
        let micros =
            u128::from(lease.millis()) * 1_000 * 1_000_000 / u128::try_from(1_000_000 + self.plan.drift).unwrap();
        now.after(Duration::from_micros(u64::try_from(micros).unwrap()))
    }

    /// Runs the script, or without a lease the check.
    fn carry_out(&mut self, which: usize, lease: Option<Lease>) -> RenewalAnswer {
        let now = Instant::now();
        let ends = lease.map(|lease| self.ends(now, lease));
        let key = &mut self.held[which].key;
        match key {
            key if key.ends <= now => RenewalAnswer::Lost(Loss::Gone),
            Key { ours: false, .. } => RenewalAnswer::Lost(Loss::Taken),
            key => {
                if let Some(ends) = ends {
                    key.ends = if key.ends == NEVER { ends } else { key.ends.max(ends) };
                    key.stepped = false;
                }
                RenewalAnswer::Renewed
            }
        }
    }

    /// Checks the invariants.
    pub(super) fn check(&mut self) {
        let now = Instant::now();
        for which in 0..self.held.len() {
            let phase = self.use_ledger(which, |ledger, now| ledger.look(now));
            let good_until = self.held[which].good_until();
            let told = self.told.borrow()[which];
            let held = &mut self.held[which];
            match phase {
                Phase::Live => {
                    assert_eq!(held.ended, None, "what has ended never comes back");
                    assert_eq!(told, 0);
                    assert!(now < good_until, "believed beyond its deadline");
                    let unknown = held.stolen || held.key.stepped;
                    assert!(unknown || held.key.ends > good_until, "believed longer than the key lives");
                }
                Phase::Releasing | Phase::Done => assert_eq!(told, 0, "nobody is told of a loss after a release"),
                Phase::Lost(loss) => {
                    assert_eq!(told, 1, "a loss is told once");
                    let early = held.promised.is_some_and(|promised| now < promised);
                    assert!(loss != Loss::Expired || !early, "no clock of a server cuts a lease");
                    assert!(held.ended.is_none_or(|ended| ended == phase), "a loss stays what it was");
                }
            }
            let ended = (phase != Phase::Live).then_some(phase);
            self.thinned |= held.ended != ended;
            held.ended = ended;
        }
    }
}

impl Held {
    pub(super) fn is_live(&self) -> bool {
        self.ended.is_none()
    }

    pub(super) fn is_watched(&self) -> bool {
        self.guards.iter().any(|(_, watched)| *watched)
    }

    fn good_until(&self) -> Instant {
        self.hold.update(|ledger, _| ledger.good_until).0
    }
}

fn which(hold: &HoldState) -> usize {
    usize::try_from(hold.number.0).unwrap()
}

impl World {
    pub(super) fn under(&self, names: &[LockName]) -> Vec<Arc<HoldState>> {
        names.iter().flat_map(|name| self.registry.under(name)).collect()
    }
}

impl RenewalHost for World {
    fn holds(&mut self) -> Vec<Arc<HoldState>> {
        self.registry.all()
    }

    fn urgent(&mut self) -> Vec<Arc<HoldState>> {
        let notes = std::mem::take(&mut self.notes);
        self.under(&notes)
    }

    fn with_ledger<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        let (answer, aftermath) = hold.update(use_ledger);
        if aftermath.is_some_and(|aftermath| aftermath.new_loss.is_some()) {
            self.told.borrow_mut()[which(hold)] += 1;
        }
        answer
    }

    fn abandon(&self, _: &Arc<HoldState>, _: bool) {
        panic!("no thread ends here");
    }

    fn ask(&mut self, requests: &[Vec<&Due>], deadline: Instant) -> Result<Vec<RequestOutcome>, Error> {
        self.looks = requests[0][0].turn.is_look();
        if self.looks {
            assert_eq!(requests.len(), 1, "checks come in one request");
            return Ok(vec![Ok(self.look(&requests[0], deadline)?)]);
        }
        assert!(!self.is_elsewhere, "no other server delays a batch");
        assert!(requests.iter().map(Vec::len).sum::<usize>() <= self.plan.batch * MOST_BATCHES_AT_ONCE);
        let first = requests.iter().map(|request| request[0].turn.good_until).min().unwrap();
        assert!(self.asked_until <= first || self.thinned, "the batch that ends first comes first");
        self.asked_until = first;
        let lease = |due: &&Due| (which(&due.hold), Some(renewal(self, due).unwrap().raise.endless));
        let locks: Vec<Vec<_>> = requests.iter().map(|request| request.iter().map(lease).collect()).collect();
        for request in requests {
            let slot = self.slot(&request[0].hold);
            assert!(request.iter().all(|due| self.slot(&due.hold) == slot), "a request is for one slot");
        }
        let all = locks.concat();
        assert!(all.iter().all(|&(which, _)| self.held[which].is_watched()), "a lease is never renewed");
        let mut fate = self.begin(&requests.iter().map(Vec::as_slice).collect::<Vec<_>>(), &all, deadline);
        if let Fate::Answered { back_ms, .. } = &mut fate {
            *back_ms += self.plan.each_ms * all.len() as u64;
        }
        let (first, others) = locks.split_first().unwrap();
        if fate.is_of_all() {
            let mut answers = self.ask(&fate, &all, deadline).map_err(Fault::into_error)?;
            return Ok(locks.iter().map(|locks| Ok(answers.drain(..locks.len()).collect())).collect());
        }
        let at_once = Fate::Answered { to_ms: 0, back_ms: 0 };
        let mut outcomes = vec![];
        for locks in others {
            outcomes.push(Ok(self.ask(&at_once, locks, deadline).map_err(Fault::into_error)?));
        }
        let first = match self.ask(&fate, first, deadline) {
            Err(Fault::Refused(refusal)) => Err(refusal),
            answer => Ok(answer.map_err(Fault::into_error)?),
        };
        outcomes.insert(0, first);
        Ok(outcomes)
    }

    fn ask_by_route(&mut self, due: &Due, deadline: Instant) -> Result<RenewalAnswer, Error> {
        let locks = [(which(&due.hold), renewal(self, due).map(|renewal| renewal.raise.endless))];
        (self.is_elsewhere, self.looks) = (true, due.turn.is_look());
        std::mem::swap(&mut self.vain, &mut self.vain_elsewhere);
        let mut fate = self.begin(&[&[due]], &locks, deadline);
        if self.plan.hangs_elsewhere {
            fate = Fate::NeverArrives;
        }
        let answers = self.ask(&fate, &locks, deadline);
        std::mem::swap(&mut self.vain, &mut self.vain_elsewhere);
        let answers = answers.map_err(Fault::into_error)?;
        answers.into_iter().next().ok_or_else(Error::odd_count)
    }

    fn detour(&self, refusal: &Refusal) -> Detour {
        match refusal.word() {
            "TRYAGAIN" => Detour::ByKey,
            "MOVED" => Detour::Moved,
            _ => Detour::None,
        }
    }

    fn hand_over(&self, _: &Arc<HoldState>) -> bool {
        false
    }

    fn slot(&self, hold: &HoldState) -> Slot {
        Slot(u16::try_from(which(hold) % self.plan.slots).unwrap())
    }

    fn renewed(&self, _: &Arc<HoldState>) {}

    fn failed(&self, locks: usize, _: Duration, _: Error) {
        assert!(locks > 0 && !self.looks, "a check renews nothing");
        self.failing.set(true);
    }

    fn renewed_in_round(&self, locks: usize) {
        assert!(locks > 0);
    }

    fn recovered(&self, _: Duration) {
        assert!(self.failing.replace(false), "nothing had failed");
    }
}

impl World {
    fn look(&mut self, request: &[&Due], deadline: Instant) -> Result<Vec<RenewalAnswer>, Error> {
        assert!(!self.is_elsewhere, "no other server delays a batch");
        let locks: Vec<_> = request.iter().map(|due| (which(&due.hold), None)).collect();
        let fate = self.begin(&[request], &locks, deadline);
        match self.ask(&fate, &locks, deadline) {
            // Each of the commands is refused.
            Err(Fault::Refused(refusal)) if matches!(fate, Fate::Moving | Fate::Moved) => {
                Ok(vec![RenewalAnswer::Refused(refusal); request.len()])
            }
            answer => answer.map_err(Fault::into_error),
        }
    }

    /// Begins a write. Returns its fate.
    fn begin(&mut self, requests: &[&[&Due]], locks: &[(usize, Option<Lease>)], deadline: Instant) -> Fate {
        let sent = Instant::now();
        for request in requests {
            let family = request[0].hold.kind.family();
            assert!(request.iter().all(|due| due.hold.kind.family() == family));
            assert!(request.is_sorted_by_key(|due| due.turn.good_until), "those that end first come first");
        }
        assert!(deadline <= sent.after(ms(self.plan.timeout_ms)));
        assert!(self.vain < ms(self.plan.timeout_ms), "one mute server costs one time-out a round");
        for &(which, lease) in locks {
            let held = &mut self.held[which];
            assert!(held.is_live(), "what has ended is not asked about");
            held.asked = true;
            held.tried |= lease.is_some();
        }
        self.fates.next().unwrap_or(Fate::Answered { to_ms: 0, back_ms: 0 })
    }

    fn ask(
        &mut self,
        fate: &Fate,
        locks: &[(usize, Option<Lease>)],
        deadline: Instant,
    ) -> Result<Vec<RenewalAnswer>, Fault> {
        let sent = Instant::now();
        self.asking = true;
        let answer = self.answer(fate, sent, deadline, locks);
        self.asking = false;
        if answer.is_err() {
            self.vain += sent.until(Instant::now());
        }
        answer
    }

    fn answer(
        &mut self,
        fate: &Fate,
        sent: Instant,
        deadline: Instant,
        locks: &[(usize, Option<Lease>)],
    ) -> Result<Vec<RenewalAnswer>, Fault> {
        let no_answer = || Fault::Unanswered(None, Error::new(ErrorKind::Unknown, "no answer"));
        match *fate {
            Fate::Answered { to_ms, back_ms } if sent.after(ms(to_ms + back_ms)) <= deadline => {
                self.pass_until(sent.after(ms(to_ms)));
                let answers: Vec<_> = locks.iter().map(|&(which, lease)| self.carry_out(which, lease)).collect();
                self.pass_until(sent.after(ms(to_ms + back_ms)));
                for (&(which, lease), answer) in locks.iter().zip(&answers) {
                    self.held[which].confirmed = true;
                    self.held[which].renewed |= lease.is_some();
                    self.held[which].disowned = matches!(answer, RenewalAnswer::Lost(_));
                }
                Ok(answers)
            }
            Fate::Answered { to_ms, .. } => {
                self.at(sent.after(ms(to_ms)), Effect::Renew(locks.to_vec()));
                self.pass_until(deadline);
                Err(no_answer())
            }
            Fate::NeverArrives => {
                self.pass_until(deadline);
                Err(no_answer())
            }
            Fate::Refused { after_ms } => {
                self.pass_until(sent.after(ms(after_ms)).min(deadline));
                Err(Fault::Refused(Refusal::for_test("READONLY")))
            }
            Fate::OneRefused { which: refused } => {
                let mut answers = vec![];
                for (place, &(which, lease)) in locks.iter().enumerate() {
                    let is_refused = place == refused % locks.len();
                    // A check that is refused for good is not repeated.
                    self.held[which].confirmed = !is_refused || lease.is_none();
                    self.held[which].renewed |= !is_refused && lease.is_some();
                    let refusal = || RenewalAnswer::Refused(Refusal::for_test("OOM"));
                    answers.push(if is_refused { refusal() } else { self.carry_out(which, lease) });
                }
                Ok(answers)
            }
            Fate::Garbled => Ok(vec![]),
            Fate::NotSent => Err(Fault::NotSent(Error::new(ErrorKind::Connection, "not sent"))),
            Fate::Moving => Err(Fault::Refused(Refusal::for_test("TRYAGAIN"))),
            Fate::Moved => Err(Fault::Refused(Refusal::for_test("MOVED"))),
        }
    }
}
