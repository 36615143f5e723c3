//! The thread of the watchdog: renews the holds of one server on a fixed grid, and watches their keys.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::conn::{DedicatedConnection, Server, Sleeper};
use crate::engine::cells::hub::{Hub, Subscription};
use crate::engine::hold::HoldState;
use crate::engine::keeper::Keeper;
use crate::engine::keeper::heartbeat::Heartbeat;
use crate::engine::keeper::watchdog::renewer::{Asked, RenewalHost, Renewer};
use crate::engine::keeper::watchdog::server_round::ServerRound;
use crate::engine::keeper::watchdog::{Events, Watchdog};
use crate::error::Error;
use crate::event::{Observer, ServerTrouble};
use crate::state::ledger::Ledger;
use crate::state::watch::{AllHolds, Watch, WatchStep};
use crate::time::Instant;
use crate::transport::Fault;

/// The work of the watchdog of one server.
pub(super) struct Worker {
    keeper: Weak<Keeper>,
    server: Arc<Server>,
    watchdog: Arc<Watchdog>,
    /// A connection of its own, so that the watchdog never waits behind callers.
    connection: DedicatedConnection,
    renewer: Renewer,
    watch: Watch,
    /// The subscription to changes of keys, while holds are watched.
    subscription: Option<Subscription>,
    next_step: Option<Instant>,
    /// The time since which no lock is held.
    empty_since: Option<Instant>,
    /// Whether the last tick found no hold on this server.
    nothing_here: bool,
    heartbeat: Arc<Heartbeat>,
}

impl Worker {
    /// `restarted` means that an earlier thread ended in the middle of its work.
    pub(super) fn new(keeper: &Keeper, server: &Arc<Server>, watchdog: &Arc<Watchdog>, restarted: bool) -> Self {
        let config = &keeper.config;
        let now = Instant::now();
        let mut watch = Watch::new(now);
        if restarted {
            // The last step of the earlier thread is unknown.
            watch.begin();
            watch.lost(now);
        }
        let renewer = Renewer::new(now, config.watchdog_interval, config.watchdog_batch, config.command_timeout);
        Self {
            keeper: Weak::clone(&keeper.myself),
            server: Arc::clone(server),
            watchdog: Arc::clone(watchdog),
            connection: server.connection(),
            renewer,
            watch,
            subscription: None,
            next_step: None,
            empty_since: None,
            nothing_here: false,
            heartbeat: Arc::clone(&keeper.heartbeat),
        }
    }

    pub(super) fn run(&mut self, sleeper: &Sleeper) {
        loop {
            let times = [self.watchdog.next_look(), self.next_step];
            let until = times.into_iter().flatten().fold(self.renewer.next_round, Instant::min);
            let now = Instant::now();
            let until = now.after(now.nap_until(until));
            self.heartbeat.rests(now, until);
            self.connection.sleep(sleeper, until);
            self.heartbeat.wakes(Instant::now());
            let Some(keeper) = self.keeper.upgrade() else { return };
            if keeper.life.is_closed() {
                return;
            }
            self.turn(&keeper);
            if self.is_over(&keeper) {
                return;
            }
        }
    }

    /// Whether the thread ends: the server has no keys any more, and no hold is left here.
    fn is_over(&self, keeper: &Keeper) -> bool {
        let rests = self.empty_since.is_some_and(|since| since.after(LINGER) <= Instant::now());
        rests && !keeper.sender.is_in_use(&self.server) && self.watchdog.is_left()
    }

    /// Handles new events and due work.
    fn turn(&mut self, keeper: &Keeper) {
        let hub = keeper.cells.hub(&self.server);
        let now = Instant::now();
        let Events { flushed, lost, moved } = self.watchdog.take();
        if lost {
            self.watch.lost(now);
        }
        if flushed {
            self.watch.flushed();
        }
        self.rest(now, self.nothing_here || keeper.cells.registry.is_empty());
        let old_enough = self.watchdog.take_old_enough(now);
        if !old_enough.is_empty() && self.subscription.is_none() {
            // Without a listening thread losses are reported late; the next watched hold tries again.
            self.subscription = hub.watch().ok();
            self.watch.begin();
        }
        let all = self.see_to_watch(keeper, hub);
        let moved: Vec<_> = moved.iter().filter_map(Weak::upgrade).collect();
        self.nothing_here &= old_enough.is_empty() && moved.is_empty();
        let Self { renewer, server, watch, connection, watchdog, nothing_here, .. } = self;
        let (gone, late) = (0, None);
        let mut round = ServerRound { keeper, server, watch, connection, watchdog, nothing_here, gone, late };
        let mut holds = round.urgent();
        if round.is_watching() {
            holds.extend(old_enough);
        }
        let asked = Asked { all, holds, moved };
        let started = Instant::now();
        let nothing = asked.all.is_none() && asked.holds.is_empty() && asked.moved.is_empty();
        if nothing && started < renewer.next_round {
            return;
        }
        renewer.round(&mut round, &asked);
        let gone = round.gone;
        let now = Instant::now();
        if self.watch.found_gone(now, gone, asked.all.is_some()) {
            self.next_step = Some(now);
        }
        if asked.all.is_some() && !self.renewer.rounds.was_in_vain() {
            self.watch.asked(now, started.until(now));
        }
    }

    /// Closes subscription and connection after a while without holds.
    fn rest(&mut self, now: Instant, nothing_held: bool) {
        if !nothing_held {
            self.empty_since = None;
        } else if self.empty_since.get_or_insert(now).after(LINGER) <= now {
            self.subscription = None;
            self.watch.end();
            self.connection.hang_up();
        }
    }

    /// Sets up tracking. Returns the request about all holds, if one is due.
    fn see_to_watch(&mut self, keeper: &Keeper, hub: &Hub) -> Option<AllHolds> {
        loop {
            let now = Instant::now();
            let (link, channel) = (self.connection.generation(), hub.tracking_channel());
            // A silent server must leave the next renewal its time.
            let in_parts = |parts| keeper.config.command_timeout.min(keeper.watchdog_lease.duration() / parts);
            let deadline = now.after(in_parts(4));
            match self.watch.next(now, link, channel) {
                WatchStep::Open => {
                    // Where no hold is renewed, no other request opens the connection, and a slow link takes its time.
                    // A hold that is taken meanwhile has the other half for its first renewal.
                    let is_renewed = |hold: &Arc<HoldState>| {
                        Arc::ptr_eq(&keeper.sender.server(&hold.name), &self.server)
                            && keeper.with_ledger(hold, Ledger::renewal).is_some()
                    };
                    let has_renewals = keeper.cells.registry.all().iter().any(is_renewed);
                    if self.connection.open(if has_renewals { deadline } else { now.after(in_parts(2)) }).is_err() {
                        self.watch.rest(Instant::now());
                    }
                }
                // Another server may have given the number of the listening connection to a client of its own.
                WatchStep::Track(listener)
                    if !self.connection.leads_where(&listener) && self.watch.wrong_server(now) =>
                {
                    hub.is_unknown(&listener);
                }
                WatchStep::Track(listener) => match self.connection.track(listener.id, deadline) {
                    Ok(()) => self.watch.tracked(),
                    Err(Fault::Refused(refusal))
                        if refusal.is_of_redirection() && self.watch.wrong_server(Instant::now()) =>
                    {
                        hub.is_unknown(&listener);
                    }
                    Err(Fault::Refused(refusal)) if !refusal.is_transient() => {
                        if self.watch.untracked() {
                            self.complain(keeper, Error::refused(refusal));
                        }
                    }
                    Err(_) => self.watch.rest(Instant::now()),
                },
                WatchStep::Complain(error) => self.complain(keeper, error),
                WatchStep::Ask(all) => return Some(all),
                WatchStep::Rest(until) => {
                    self.next_step = until;
                    return None;
                }
            }
        }
    }

    fn complain(&self, keeper: &Keeper, error: Error) {
        keeper.config.observe(Observer::losses_told_late, || ServerTrouble { server: self.server.label(), error });
    }
}

/// The time for which connections outlive the last hold, because the next hold may need them.
const LINGER: Duration = Duration::from_secs(3);
