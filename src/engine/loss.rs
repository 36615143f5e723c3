//! How a loss becomes known: whoever uses a ledger may notice it, and then it is told once.

use std::sync::{Arc, Weak};

use super::Engine;
use super::hold::{Aftermath, HoldState, News, OnLost};
use super::ledger::{Ledger, Phase};
use crate::error::Loss;
use crate::event::LockLost;
use crate::time::Instant;

impl Engine {
    /// Uses the ledger of a hold under its mutex; a loss that comes to light by that is told.
    pub(crate) fn with<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        let (answer, Aftermath { news, unminded }) = hold.update(use_ledger);
        if let Some(ticket) = unminded {
            self.timer.cancel(ticket);
        }
        if let Some(news) = news {
            self.tell(hold, news);
        }
        answer
    }

    /// Redis says that this hold is gone.
    pub(crate) fn lose(&self, hold: &HoldState, loss: Loss) {
        self.with(hold, |ledger, _| ledger.lose(loss));
    }

    /// Has `callback` run once when the hold is lost, at the very moment.
    pub(crate) fn on_lost(&self, hold: &Arc<HoldState>, callback: OnLost) {
        match hold.on_lost(callback) {
            Ok(()) => self.mind(hold),
            Err((loss, callback)) => self.teller.run(move || callback(&loss)),
        }
    }

    /// A deadline may have come nearer: whoever wants to hear of the loss at once hears at the new one.
    pub(super) fn mind_if_heard(&self, hold: &Arc<HoldState>) {
        if self.has_observer || hold.has_listeners() {
            self.mind(hold);
        }
    }

    /// Looks at the hold when its deadline comes, and again when that was put off.
    fn mind(&self, hold: &Arc<HoldState>) {
        if self.with(hold, |ledger, now| ledger.look(now)) != Phase::Live {
            return;
        }
        let needless = hold.mind(|deadline| {
            let (engine, hold) = (Weak::clone(&self.myself), Arc::downgrade(hold));
            self.timer.run_at(deadline, move || {
                if let (Some(engine), Some(hold)) = (engine.upgrade(), hold.upgrade()) {
                    hold.was_minded(deadline);
                    engine.mind(&hold);
                }
            })
        });
        if let Some(ticket) = needless {
            self.timer.cancel(ticket);
        }
    }

    /// Keeps a hold that nobody has any more until its deadline, when somebody may be to be told.
    pub(super) fn outlast(&self, hold: &Arc<HoldState>) {
        let (engine, hold) = (Weak::clone(&self.myself), Arc::clone(hold));
        let deadline = self.with(&hold, |ledger, _| ledger.good_until());
        self.timer.run_at(deadline, move || {
            if let Some(engine) = engine.upgrade()
                && engine.with(&hold, |ledger, now| ledger.look(now)) == Phase::Live
            {
                engine.outlast(&hold); // somebody extended it
            }
        });
    }

    fn tell(&self, hold: &HoldState, news: News) {
        let News { loss, on_lost } = news;
        self.observe(|observer| {
            observer.lost(&LockLost { name: hold.name.to_string(), owner: hold.owner.to_string(), loss });
        });
        for callback in on_lost {
            self.teller.run(move || callback(&loss));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::ClientBuilder;
    use crate::conn::{Address, Dialer, Server, Standalone};
    use crate::engine::ledger::Promise;
    use crate::event::Observer;
    use crate::name::LockName;
    use crate::owner::ThreadId;
    use crate::script::Side;
    use crate::time::Lease;

    #[derive(Debug)]
    struct Quiet;

    impl Observer for Quiet {}

    #[test]
    fn the_timer_forgets_what_was_given_back_or_lost() {
        let url = "redis://127.0.0.1:1";
        let config = ClientBuilder::new(url).observer(Quiet).config;
        let server = Server::new(Dialer::new(Address::parse(url).unwrap(), "test".into()), 1);
        let engine = Engine::new(config, Box::new(Standalone::new(server))).unwrap();
        let jobs = || format!("{:?}", engine.timer);
        let hour = Lease::new(Duration::from_secs(3_600)).unwrap();
        for gives_back in [true, false] {
            let owner = engine.owners.draw(ThreadId::current().number());
            let now = Instant::now();
            let promise = Promise::Leased { until: now.after(hour.duration()) };
            let (ledger, guard) = Ledger::granted(hour, now, hour, Side::Exclusive, promise);
            let hold = HoldState::for_test(&LockName::new("job").unwrap(), owner, None, now, ledger);
            engine.mind_if_heard(&hold);
            engine.mind_if_heard(&hold);
            assert_eq!(jobs(), "Background(lockson-timer, 1 jobs)");
            if gives_back {
                engine.with(&hold, |ledger, now| ledger.release(guard, now));
            } else {
                engine.lose(&hold, Loss::Gone);
            }
            assert_eq!(jobs(), "Background(lockson-timer, 0 jobs)");
            engine.mind_if_heard(&hold);
            assert_eq!(jobs(), "Background(lockson-timer, 0 jobs)");
        }
    }
}
