//! The actions of users in the model, and the events of their locks.
#![cfg(test)]

use super::*;
use crate::kinds::{Fenced, Kind, Plain};
use crate::owner::{HoldNumber, OwnerId};
use crate::script::Side;
use crate::state::ledger::{Phase, Promise, Release};

impl World {
    pub(super) fn act(&mut self, act: Act) {
        let now = Instant::now();
        match act {
            Act::Acquire { leased_ms } => self.acquire(leased_ms),
            _ if self.held.is_empty() => {}
            Act::Reenter { which, leased_ms } => self.reenter(which, leased_ms),
            Act::Release { which, guard, to_ms, back_ms } => self.release(which, guard, ms(to_ms), ms(back_ms)),
            Act::Delete { which } => {
                let held = self.some(which);
                held.stolen = true;
                held.key.ends = now;
            }
            Act::Take { which } => {
                let held = self.some(which);
                held.stolen = true;
                held.key = Key { ends: now.after(ms(1_000_000)), ours: false, stepped: false };
            }
            Act::Persist { which } => {
                // A request in flight may have been computed before a promise that it then shortens.
                let is_quiet = !self.asking && !self.agenda.values().any(|next| matches!(next, Effect::Renew(_)));
                let key = &mut self.some(which).key;
                if is_quiet && key.ours && key.ends > now {
                    key.ends = NEVER;
                }
            }
            Act::Check { which } => {
                let name = self.some(which).hold.name.clone();
                self.notes.push(name);
            }
            Act::CheckAll { all } => self.all = Some(all),
            Act::Step { by_ms } => self.set_clock_forward(ms(by_ms)),
        }
    }

    fn some(&mut self, which: usize) -> &mut Held {
        let count = self.held.len();
        &mut self.held[which % count]
    }

    fn acquire(&mut self, leased_ms: Option<u64>) {
        let now = Instant::now();
        let number = self.held.len();
        let lease = lease(leased_ms.unwrap_or(self.plan.lease_ms));
        let promise = leased_ms
            .map_or(Promise::Renewed { until: None }, |_| Promise::Leased { until: now.after(lease.duration()) });
        let watchdog = Lease::new(ms(self.plan.lease_ms)).unwrap();
        let (ledger, guard) = Ledger::granted(watchdog, now, lease, Side::Exclusive, promise);
        let name = LockName::new(&format!("n{number}")).unwrap();
        let owner = (HoldNumber(number as u64), OwnerId::encoded(format!("o{number}")));
        let kind: Arc<dyn Kind> =
            if number.is_multiple_of(2) { Arc::new(Plain { reentrant: true }) } else { Arc::new(Fenced) };
        let hold = HoldState::of_kind(kind, &name, owner, None, now, ledger);
        self.registry.add(Arc::clone(&hold));
        self.told.borrow_mut().push(0);
        self.held.push(Held {
            hold,
            guards: vec![(guard, leased_ms.is_none())],
            key: Key { ends: self.ends(now, lease), ours: true, stepped: false },
            stolen: false,
            busy: false,
            promised: leased_ms.map(|_| lease.good_until(now)),
            ended: None,
            asked: false,
            confirmed: false,
            renewed: false,
            tried: false,
            disowned: false,
            failed: None,
        });
    }

    fn reenter(&mut self, which: usize, leased_ms: Option<u64>) {
        let Some(which) = self.usable(which) else { return };
        let now = Instant::now();
        let lease = lease(leased_ms.unwrap_or(self.plan.lease_ms));
        if self.use_ledger(which, |ledger, now| ledger.counts_after_reentry(now, Side::Exclusive)).is_err() {
            return;
        }
        let to_write = self.use_ledger(which, |ledger, now| ledger.raise(now, lease).endless);
        if let RenewalAnswer::Lost(loss) = self.carry_out(which, Some(to_write)) {
            self.use_ledger(which, |ledger, _| ledger.step(Phase::Live, Phase::Lost(loss)));
            return;
        }
        let promise = leased_ms
            .map_or(Promise::Renewed { until: None }, |_| Promise::Leased { until: now.after(lease.duration()) });
        let guard = self.use_ledger(which, |ledger, now| ledger.reentered(now, now, lease, Side::Exclusive, promise));
        let held = &mut self.held[which];
        held.guards.push((guard.unwrap(), leased_ms.is_none()));
        (held.promised, held.failed, held.confirmed, held.renewed) = (None, None, true, true);
    }

    fn release(&mut self, which: usize, guard: usize, to: Duration, back: Duration) {
        let Some(which) = self.usable(which) else { return };
        let now = Instant::now();
        let held = &mut self.held[which];
        let guard = held.guards.remove(guard % held.guards.len()).0;
        held.promised = None;
        self.thinned = true;
        match self.use_ledger(which, |ledger, now| ledger.release(guard, now)) {
            Release::Partial => {
                let remaining = self.use_ledger(which, |ledger, now| ledger.remaining(now));
                let (_, lease) = remaining.expect("a guard is left");
                self.held[which].busy = true;
                self.at(now.after(to), Effect::Lower { which, lease });
                self.at(now.after(to).after(back), Effect::Lowered { which });
            }
            Release::Last => {
                self.registry.remove(&self.held[which].hold);
                self.at(now.after(to), Effect::Open { which });
                self.at(now.after(to).after(back), Effect::Opened { which });
            }
            Release::Lost(_) if self.held[which].guards.is_empty() => {
                self.registry.remove(&self.held[which].hold);
            }
            Release::Lost(_) => {}
            Release::Unknown => panic!("a guard that is there is known"),
        }
    }

    /// A hold that its owner can use.
    fn usable(&self, which: usize) -> Option<usize> {
        let which = which.checked_rem(self.held.len())?;
        let held = &self.held[which];
        (!held.busy && !held.guards.is_empty()).then_some(which)
    }
}
