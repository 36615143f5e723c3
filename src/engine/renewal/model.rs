//! A server, the network before it and the users of a few locks, on virtual time.
#![cfg(test)]

mod users;

use std::cell::RefCell;
use std::collections::BTreeMap;

use super::*;
use crate::engine::ledger::GuardNumber;
use crate::engine::registry::Registry;
use crate::error::{Loss, Refusal};

pub(super) const START: Instant = Instant::from_millis(1_000_000);

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn lease(millis: u64) -> Lease {
    Lease::new(ms(millis)).unwrap()
}

/// What happens, and how the server and the network behave.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) lease_ms: u64,
    pub(super) timeout_ms: u64,
    pub(super) batch: usize,
    /// By how many millionths the server's clock is faster than ours.
    pub(super) drift: i64,
    pub(super) acts: Vec<(u64, Act)>,
    /// What becomes of each request; those after the last are answered at once.
    pub(super) fates: Vec<Fate>,
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
    /// Somebody announced something about the lock.
    Check {
        which: usize,
    },
    /// The server's clock is set forward.
    Step {
        by_ms: u64,
    },
}

#[derive(Clone, Debug)]
pub(super) enum Fate {
    /// Carried out after `to_ms`, answered after `back_ms` more: perhaps too late.
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
    /// The answer is for another number of locks.
    Garbled,
    NotSent,
}

enum Effect {
    Act(Act),
    /// A renewal whose answer nobody waits for any more is carried out.
    Renew(Vec<(usize, Lease)>),
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
    ends: Instant,
    ours: bool,
    /// The server's clock was set forward since it was renewed: the holder cannot know yet.
    stepped: bool,
}

pub(super) struct Held {
    pub(super) hold: Arc<HoldState>,
    /// The guards there are, and whether each is renewed.
    guards: Vec<(GuardNumber, bool)>,
    key: Key,
    /// Somebody deleted the key or took it: the holder cannot know yet.
    stolen: bool,
    /// A request of its owner is under way; there is one at a time.
    busy: bool,
    /// Until when a lease was promised that nothing has touched since.
    promised: Option<Instant>,
    ended: Option<Phase>,
    pub(super) asked: bool,
    pub(super) confirmed: bool,
    /// The server said that it is lost.
    pub(super) disowned: bool,
    /// When a renewal had failed that nothing has made good since.
    pub(super) failed: Option<Instant>,
}

pub(super) struct World {
    plan: Plan,
    pub(super) held: Vec<Held>,
    registry: Registry,
    told: RefCell<Vec<usize>>,
    agenda: BTreeMap<(Instant, usize), Effect>,
    /// By how much the server's clock was set forward.
    stepped: Duration,
    planned: usize,
    fates: std::vec::IntoIter<Fate>,
    pub(super) notes: Vec<LockName>,
    /// How long this round waited for requests that failed.
    pub(super) vain: Duration,
}

impl World {
    pub(super) fn new(plan: &Plan) -> Self {
        let mut world = Self {
            plan: plan.clone(),
            held: vec![],
            registry: Registry::default(),
            told: RefCell::default(),
            agenda: BTreeMap::new(),
            stepped: Duration::ZERO,
            planned: 0,
            fates: plan.fates.clone().into_iter(),
            notes: vec![],
            vain: Duration::ZERO,
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

    /// Lets the time pass, at most until somebody has a note for the watchdog.
    pub(super) fn idle_until(&mut self, to: Instant) {
        while self.notes.is_empty() && self.step(to) {}
    }

    fn pass_until(&mut self, to: Instant) {
        while self.step(to) {}
    }

    /// Goes on to whatever comes next; `false` when `to` has come.
    fn step(&mut self, to: Instant) -> bool {
        let next = self.agenda.keys().next().map(|(at, _)| *at);
        // Every deadline is looked at when it comes, as the timer does.
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
                    self.renew(which, lease);
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
            Effect::Opened { which } => self.use_ledger(which, |ledger, _| ledger.settled()),
        }
    }

    fn use_ledger<T>(&self, which: usize, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        self.with(&self.held[which].hold, use_ledger)
    }

    pub(super) fn set_clock_forward(&mut self, by: Duration) {
        self.stepped += by;
        for held in &mut self.held {
            held.key.ends = held.key.ends.before(by);
            held.key.stepped = true;
        }
    }

    /// When a key ends, by our clock, whose time to live the server begins to count now.
    fn ends(&self, now: Instant, lease: Lease) -> Instant {
        let micros =
            u128::from(lease.millis()) * 1_000 * 1_000_000 / u128::try_from(1_000_000 + self.plan.drift).unwrap();
        now.after(Duration::from_micros(u64::try_from(micros).unwrap()))
    }

    fn server_time_ms(&self) -> u64 {
        let micros = i64::try_from(START.until(Instant::now()).as_micros()).unwrap();
        let by_its_rate = u64::try_from(1_700_000_000_000 + (micros + micros * self.plan.drift / 1_000_000) / 1_000);
        by_its_rate.unwrap() + u64::try_from(self.stepped.as_millis()).unwrap()
    }

    /// What the script does.
    fn renew(&mut self, which: usize, lease: Lease) -> RenewalAnswer {
        let now = Instant::now();
        let ends = self.ends(now, lease);
        let key = &mut self.held[which].key;
        match key {
            key if key.ends <= now => RenewalAnswer::Lost(Loss::Gone),
            Key { ours: false, .. } => RenewalAnswer::Lost(Loss::Taken),
            key => {
                key.ends = key.ends.max(ends);
                key.stepped = false;
                RenewalAnswer::Renewed
            }
        }
    }

    /// What must be so at every moment.
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
                    assert!(loss != Loss::Expired || !early, "a lease was cut though the clocks go well enough");
                    assert!(held.ended.is_none_or(|ended| ended == phase), "a loss stays what it was");
                }
            }
            held.ended = (phase != Phase::Live).then_some(phase);
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
        self.hold.update(|ledger, _| ledger.good_until()).0
    }
}

impl Upkeep for World {
    fn holds(&self) -> Vec<Arc<HoldState>> {
        self.registry.all()
    }

    fn with<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        let (answer, aftermath) = hold.update(use_ledger);
        if aftermath.news.is_some() {
            self.told.borrow_mut()[usize::try_from(hold.number.0).unwrap()] += 1;
        }
        answer
    }

    fn abandon(&self, _: &Arc<HoldState>) {
        panic!("no thread ends here");
    }

    fn ask(&mut self, batch: &[&Due], deadline: Instant) -> Result<RenewalAnswers, Error> {
        let sent = Instant::now();
        assert!(!batch.is_empty() && batch.len() <= self.plan.batch);
        assert!(deadline <= sent.after(ms(self.plan.timeout_ms)));
        assert!(self.vain < ms(self.plan.timeout_ms), "one mute server costs one time-out a round");
        let mut locks = vec![];
        for due in batch {
            let which = usize::try_from(due.hold.number.0).unwrap();
            let held = &mut self.held[which];
            assert!(held.is_live(), "what has ended is not renewed");
            assert!(held.is_watched() || due.lease == Lease::SHORTEST, "a lease is never renewed");
            held.asked = true;
            locks.push((which, due.lease));
        }
        let fate = self.fates.next().unwrap_or(Fate::Answered { to_ms: 0, back_ms: 0 });
        let answer = self.answer(&fate, sent, deadline, &locks);
        if answer.is_err() {
            self.vain += sent.until(Instant::now());
        }
        answer
    }

    fn renewed(&self, _: &Arc<HoldState>) {}

    fn failed(&self, locks: usize, _: Error) {
        assert!(locks > 0);
    }
}

impl World {
    fn answer(
        &mut self,
        fate: &Fate,
        sent: Instant,
        deadline: Instant,
        locks: &[(usize, Lease)],
    ) -> Result<RenewalAnswers, Error> {
        let no_answer = || Error::new(ErrorKind::Unknown, "no answer");
        match *fate {
            Fate::Answered { to_ms, back_ms } if sent.after(ms(to_ms + back_ms)) <= deadline => {
                self.pass_until(sent.after(ms(to_ms)));
                let server_time_ms = self.server_time_ms();
                let answers: Vec<_> = locks.iter().map(|&(which, lease)| self.renew(which, lease)).collect();
                self.pass_until(sent.after(ms(to_ms + back_ms)));
                for (&(which, _), answer) in locks.iter().zip(&answers) {
                    self.held[which].confirmed = true;
                    self.held[which].disowned = matches!(answer, RenewalAnswer::Lost(_));
                }
                Ok(RenewalAnswers { server_time_ms, answers })
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
                Err(Error::refused(Refusal::for_test("READONLY")))
            }
            Fate::OneRefused { which: refused } => {
                let mut answers = vec![];
                for (place, &(which, lease)) in locks.iter().enumerate() {
                    let is_refused = place == refused % locks.len();
                    self.held[which].confirmed = !is_refused;
                    let refusal = || RenewalAnswer::Refused(Refusal::for_test("OOM"));
                    answers.push(if is_refused { refusal() } else { self.renew(which, lease) });
                }
                Ok(RenewalAnswers { server_time_ms: self.server_time_ms(), answers })
            }
            Fate::Garbled => Ok(RenewalAnswers { server_time_ms: self.server_time_ms(), answers: vec![] }),
            Fate::NotSent => Err(Error::new(ErrorKind::Connection, "not sent")),
        }
    }
}
