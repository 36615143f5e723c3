//! Holds are kept, or their losses told.

pub(crate) mod extend;
pub(crate) mod heartbeat;
mod loss;
pub(crate) mod partial;
pub(crate) mod watchdog;

use std::sync::{Arc, Weak};

use crate::config::Config;
use crate::conn::Server;
use crate::engine::background::Background;
use crate::engine::cells::Cells;
use crate::engine::cells::hub::{Report, Reports};
use crate::engine::hold::HoldState;
use crate::engine::hold::requests::RequestTurn;
use crate::engine::life::Life;
use crate::engine::per_server::PerServer;
use crate::engine::sender::Sender;
use crate::engine::sender::exactly_once::{Answer, SendResult};
use crate::error::{Loss, Result};
use crate::event::{Observer, ServerRecovered, ServerTrouble};
use crate::name::LockName;
use crate::state::exchange::InDoubt;
use crate::state::ledger::{Ledger, Phase};
use crate::time::{Instant, Lease};
use heartbeat::Heartbeat;
use watchdog::Watchdog;

/// Keeps the holds of one client.
pub(crate) struct Keeper {
    config: Arc<Config>,
    life: Arc<Life>,
    sender: Arc<Sender>,
    pub(crate) cells: Arc<Cells>,
    /// The lease of a hold that is renewed.
    pub(crate) watchdog_lease: Lease,
    watchdogs: PerServer<Watchdog>,
    callbacks: Background,
    timer: Background,
    heartbeat: Arc<Heartbeat>,
    myself: Weak<Self>,
}

impl Keeper {
    pub(crate) fn new(config: Arc<Config>, life: Arc<Life>, sender: Arc<Sender>) -> Result<Arc<Self>> {
        let watchdog_lease = Lease::new(config.watchdog_timeout)?;
        Ok(Arc::new_cyclic(|myself| Self {
            cells: Arc::new(Cells::new(config.command_timeout, Arc::new(Weak::clone(myself)))),
            config,
            life,
            sender,
            watchdog_lease,
            watchdogs: PerServer::default(),
            callbacks: Background::new("lockson-tell", true),
            timer: Background::new("lockson-timer", false),
            heartbeat: Arc::default(),
            myself: Weak::clone(myself),
        }))
    }

    /// Keeps a hold that was added beside dead ones, whose losses may not have been reported.
    pub(crate) fn added(&self, hold: &Arc<HoldState>, dead: &[Arc<HoldState>]) {
        for dead in dead {
            self.schedule_check(dead);
        }
        // A new hold has no callbacks, so only an observer may wait for its loss.
        if self.config.observer.is_some() {
            self.schedule_check(hold);
        }
        self.granted(hold);
    }

    /// Keeps a granted hold from now on: it is renewed, and watched after a moment.
    pub(crate) fn granted(&self, hold: &Arc<HoldState>) {
        let server = self.sender.server(&hold.name);
        let watchdog = self.watchdog(&server);
        if !watchdog.granted(hold) {
            watchdog.start(self, &server);
        }
    }

    /// Schedules a check of the holds of this lock, after a change by another client.
    pub(crate) fn verify_holds(&self, name: &LockName) {
        if !self.cells.registry.under(name).is_empty() {
            self.watchdog(&self.sender.server(name)).verify([name.clone()]);
        }
    }

    pub(crate) fn watchdog(&self, server: &Arc<Server>) -> &Arc<Watchdog> {
        self.watchdogs.get(server.number(), Watchdog::default)
    }

    /// Clears away, in the background, what may be left of a hold that this process gave up. A side that was left to
    /// expire stays.
    pub(crate) fn clear_away(&self, hold: &HoldState, in_doubt: InDoubt) {
        let (until, stays) = self.with_ledger(hold, |ledger, now| {
            let is_gone = matches!(ledger.phase, Phase::Lost(Loss::Gone | Loss::Taken));
            (ledger.end.max(now.after(self.watchdog_lease.duration())), !is_gone && ledger.is_kept(now))
        });
        let owner = (!stays).then(|| (Arc::clone(&hold.kind), hold.owner.clone()));
        self.sender.clean_up(hold.name.clone(), owner, in_doubt, until);
    }

    /// Takes the outcome of a request in its turn, and keeps what the request left in doubt.
    pub(crate) fn in_turn<A, R>(
        &self,
        hold: &HoldState,
        turn: &RequestTurn<'_>,
        outcome: SendResult<A>,
        learn: impl FnOnce(&mut Ledger, Instant, &Answer<A>) -> R,
    ) -> Result<R> {
        self.sender.after_request(self.sender.node(&hold.name));
        match outcome {
            Ok(answer) => {
                let learnt = self.with_ledger(hold, |ledger, now| {
                    if !answer.unfenceable {
                        ledger.cut_is_over(answer.clear_since);
                    }
                    learn(ledger, now, &answer)
                });
                self.keep_in_doubt(hold, turn, InDoubt { fenceable: vec![], unfenceable: answer.unfenceable });
                Ok(learnt)
            }
            Err(failed) => {
                self.keep_in_doubt(hold, turn, failed.in_doubt.unwrap_or_default());
                Err(failed.error)
            }
        }
    }

    /// Keeps copies for the next request of the hold. A hold that is over sends none, so its copies are cleared away; a
    /// side that was left to expire stays.
    fn keep_in_doubt(&self, hold: &HoldState, turn: &RequestTurn<'_>, in_doubt: InDoubt) {
        if in_doubt.is_empty() {
            return;
        }
        turn.keep_in_doubt(in_doubt);
        let is_over = |ledger: &mut Ledger, now| {
            let has_ended = matches!(ledger.look(now), Phase::Lost(_) | Phase::Done);
            has_ended && ledger.guards.is_empty() && !ledger.is_kept(now)
        };
        if self.with_ledger(hold, is_over) {
            self.clear_away(hold, hold.take_in_doubt());
        }
    }

    /// Ends the watchdogs and the timer.
    pub(crate) fn close(&self) {
        self.watchdogs.all().for_each(|watchdog| watchdog.put(|_| ()));
        self.timer.finish(Instant::now());
    }
}

impl Reports for Weak<Keeper> {
    fn has_left(&self, server: &Arc<Server>) -> bool {
        self.upgrade().is_some_and(|keeper| !keeper.sender.is_in_use(server))
    }

    fn take(&self, server: &Arc<Server>, report: Report) {
        let Some(keeper) = self.upgrade() else { return };
        let Keeper { config, sender, cells, .. } = &*keeper;
        match report {
            Report::Announced(name) => {
                cells.stand_backs.with(&name, |turn, _, now| turn.heard(now));
                keeper.verify_holds(&name);
                cells.local_queues.hint(&name);
            }
            Report::Counted { name, payload, is_own } => {
                if !is_own {
                    cells.stand_backs.with(&name, |turn, _, now| turn.heard(now));
                }
                cells.counted_queues.message(&name, &payload);
            }
            Report::Invalidated(None) => keeper.watchdog(server).put(|events| events.flushed = true),
            Report::Invalidated(Some(keys)) => {
                let names = cells.registry.watched(&keys);
                if !names.is_empty() {
                    keeper.watchdog(server).verify(names);
                }
            }
            Report::TrackingChannelChanged => keeper.watchdog(server).put(|_| ()),
            Report::Elsewhere(refusal) => _ = sender.topology.redirect(server.number(), &refusal),
            Report::Lost(error) => {
                keeper.watchdog(server).put(|events| events.lost = true);
                sender.topology.doubt(server.number());
                config.observe(Observer::listening_failed, || ServerTrouble { server: server.label(), error });
            }
            Report::Recovered(outage) => {
                config.observe(Observer::listening_recovered, || ServerRecovered { server: server.label(), outage });
            }
        }
    }
}
