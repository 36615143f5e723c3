//! Losses: any use of a ledger may detect a loss, which is then reported once.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::engine::background::JobTicket;
use crate::engine::hold::{Aftermath, HoldState, OnLost};
use crate::engine::keeper::Keeper;
use crate::error::{Error, Loss};
use crate::event::{HoldEnded, LockLost, Observer};
use crate::state::ledger::{Ledger, Phase};
use crate::time::Instant;

impl Keeper {
    /// Uses the ledger of a hold under its mutex, and reports a loss that this use detects.
    pub(crate) fn with_ledger<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        let (answer, aftermath) = hold.update(use_ledger);
        if let Some(aftermath) = aftermath {
            self.follow_up(hold, aftermath);
        }
        answer
    }

    fn follow_up(&self, hold: &HoldState, aftermath: Aftermath) {
        let Aftermath { new_loss, on_lost, needless_check } = aftermath;
        if let Some(ticket) = needless_check {
            self.timer.cancel(ticket);
        }
        if let Some(loss) = new_loss {
            self.tell(hold, loss, on_lost);
        }
    }

    /// Records a loss that Redis reported.
    pub(crate) fn lose(&self, hold: &HoldState, loss: Loss) {
        self.with_ledger(hold, |ledger, now| ledger.reported_lost(now, loss));
    }

    /// Runs `callback` once when the hold is lost, without delay.
    pub(crate) fn on_lost(&self, hold: &Arc<HoldState>, callback: OnLost) {
        match hold.on_lost(callback) {
            Ok(()) => self.schedule_check(hold),
            Err((loss, callback)) => _ = self.callbacks.run_at(Instant::now(), move || callback(&loss)),
        }
    }

    /// Schedules the check anew after a deadline moved closer, if an observer or a callback waits for the loss.
    pub(crate) fn schedule_if_observed(&self, hold: &Arc<HoldState>) {
        if self.config.observer.is_some() || hold.has_listeners() {
            self.schedule_check(hold);
        }
    }

    /// Checks the hold at its deadline, and again after each extension.
    pub(crate) fn schedule_check(&self, hold: &Arc<HoldState>) {
        if self.with_ledger(hold, |ledger, now| ledger.look(now)) != Phase::Live {
            return;
        }
        let needless = hold.schedule_check(|deadline| self.see_to(hold, deadline, Self::schedule_check));
        if let Some(ticket) = needless {
            self.timer.cancel(ticket);
        }
    }

    /// Has the timer work on a hold, if the hold is still there by then.
    pub(crate) fn see_to(&self, hold: &Arc<HoldState>, at: Instant, work: fn(&Self, &Arc<HoldState>)) -> JobTicket {
        let (keeper, hold) = (Weak::clone(&self.myself), Arc::downgrade(hold));
        self.timer.run_at(at, move || {
            if let (Some(keeper), Some(hold)) = (keeper.upgrade(), hold.upgrade()) {
                work(&keeper, &hold);
            }
        })
    }

    /// Builds the error of a lost hold.
    pub(crate) fn lost(&self, hold: &HoldState, loss: Loss) -> Error {
        Error::lost(hold.kind.noun(), loss, &self.sender.server(&hold.name).label(), self.stood_still(hold, loss))
    }

    /// Returns the approximate time for which the process was stopped when the hold expired.
    fn stood_still(&self, hold: &HoldState, loss: Loss) -> Option<Duration> {
        let deadline = (loss == Loss::Expired).then(|| self.with_ledger(hold, |ledger, _| ledger.good_until))?;
        self.heartbeat.standstill_at(deadline, Instant::now())
    }

    /// Tells the observer that a hold has ended.
    pub(crate) fn tell_end(&self, hold: &HoldState, loss: Option<Loss>, error: Option<&Error>, is_kept: bool) {
        self.config.observe(Observer::hold_ended, || {
            let held = hold.since.until(Instant::now());
            HoldEnded::of(hold.in_events(), held, loss, error.cloned(), is_kept)
        });
    }

    fn tell(&self, hold: &HoldState, loss: Loss, on_lost: Vec<OnLost>) {
        let event = || LockLost::of(hold.in_events(), loss, self.stood_still(hold, loss));
        self.config.observe(Observer::lost, event);
        self.tell_end(hold, Some(loss), None, false);
        for callback in on_lost {
            self.callbacks.run_at(Instant::now(), move || callback(&loss));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::ClientBuilder;
    use crate::conn::{Server, Standalone};
    use crate::engine::parts::Engine;
    use crate::name::LockName;
    use crate::owner::{Owners, ThreadId};
    use crate::script::Side;
    use crate::state::ledger::Promise;
    use crate::time::Lease;

    #[derive(Debug)]
    struct Quiet;

    impl Observer for Quiet {}

    #[derive(Debug, Default)]
    struct Noted(crate::sync::Mutex<Vec<Option<Duration>>>);

    impl Observer for Arc<Noted> {
        fn lost(&self, event: &LockLost) {
            self.0.lock().push(event.stood_still());
        }
    }

    #[test]
    fn a_loss_says_that_the_process_stood_still() {
        let (url, noted) = ("redis://127.0.0.1:1", Arc::<Noted>::default());
        let config = ClientBuilder::new(url).observer(Arc::clone(&noted)).config;
        let server = Server::for_test(url);
        let engine =
            Engine::new(config, crate::owner::Owners::new(), String::new(), Box::new(Standalone(Arc::new(server))))
                .unwrap();
        let at = Instant::from_millis;
        let _pretence = at(1_000_000).pretend();
        let lease = Lease::new(Duration::from_secs(10)).unwrap();
        for (wakes, stood_still) in [(1_001_500, None), (1_040_000, Some(Duration::from_millis(39_500)))] {
            at(1_000_000).comes();
            let owner = engine.owners.draw(ThreadId::current().number());
            let promise = Promise::Renewed { until: None };
            let (ledger, guard) = Ledger::granted(lease, at(1_000_000), lease, Side::Exclusive, promise);
            let hold = HoldState::for_test(&LockName::new("job").unwrap(), owner, None, at(1_000_000), ledger);
            engine.keeper.heartbeat.rests(at(1_000_000), at(1_001_000));
            at(wakes).comes();
            engine.keeper.heartbeat.wakes(at(wakes));
            at(1_040_000).comes();
            let error = engine.release(&hold, guard, Duration::ZERO).unwrap_err();
            assert_eq!(error.to_string().contains("stood still for about 40 s"), stood_still.is_some(), "{error}");
            assert_eq!(noted.0.lock().pop(), Some(stood_still));
        }
    }

    #[test]
    fn the_timer_is_set_again_where_the_deadline_was_put_off() {
        let url = "redis://127.0.0.1:1";
        let server = Server::for_test(url);
        let engine = Engine::new(
            ClientBuilder::new(url).config,
            Owners::new(),
            String::new(),
            Box::new(Standalone(Arc::new(server))),
        )
        .unwrap();
        let lease = |millis| Lease::new(Duration::from_millis(millis)).unwrap();
        let (owner, now) = (engine.owners.draw(ThreadId::current().number()), Instant::now());
        let promise = Promise::Leased { until: now.after(Duration::from_millis(300)) };
        let (ledger, _) = Ledger::granted(lease(300), now, lease(300), Side::Exclusive, promise);
        let hold = HoldState::for_test(&LockName::new("job").unwrap(), owner, None, now, ledger);
        let (told, heard) = crossbeam_channel::unbounded();
        engine.keeper.on_lost(&hold, Box::new(move |loss| told.send(*loss).unwrap()));
        engine.keeper.with_ledger(&hold, |ledger, now| ledger.extended(now, lease(900), None));
        assert_eq!(heard.recv_timeout(Duration::from_secs(10)), Ok(Loss::Expired), "nobody asks meanwhile");
        assert!(now.until(Instant::now()) >= Duration::from_millis(800), "at its new end");
    }

    #[test]
    fn the_timer_forgets_what_was_given_back_or_lost() {
        let url = "redis://127.0.0.1:1";
        let config = ClientBuilder::new(url).observer(Quiet).config;
        let server = Server::for_test(url);
        let engine = Engine::new(config, Owners::new(), String::new(), Box::new(Standalone(Arc::new(server)))).unwrap();
        let jobs = || format!("{:?}", engine.keeper.timer);
        let hour = Lease::new(Duration::from_secs(3_600)).unwrap();
        for gives_back in [true, false] {
            let owner = engine.owners.draw(ThreadId::current().number());
            let now = Instant::now();
            let promise = Promise::Leased { until: now.after(hour.duration()) };
            let (ledger, guard) = Ledger::granted(hour, now, hour, Side::Exclusive, promise);
            let hold = HoldState::for_test(&LockName::new("job").unwrap(), owner, None, now, ledger);
            engine.keeper.schedule_if_observed(&hold);
            engine.keeper.schedule_if_observed(&hold);
            assert_eq!(jobs(), "Background(lockson-timer, 1 jobs)");
            if gives_back {
                engine.keeper.with_ledger(&hold, |ledger, now| ledger.release(guard, now));
            } else {
                engine.keeper.lose(&hold, Loss::Gone);
            }
            assert_eq!(jobs(), "Background(lockson-timer, 0 jobs)");
            engine.keeper.schedule_if_observed(&hold);
            assert_eq!(jobs(), "Background(lockson-timer, 0 jobs)");
        }
    }
}
