//! The thread of the watchdog: renews the holds of one server on a fixed grid, and watches their keys.

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::inbox::{Events, Inbox};
use super::renewer::{Asked, Due, RenewalHost, Renewer, renewal};
use crate::conn::{DedicatedConnection, Server, Sleeper};
use crate::durability::Durability;
use crate::engine::Engine;
use crate::engine::holds::heartbeat::Heartbeat;
use crate::engine::holds::hold::HoldState;
use crate::engine::hub::{Hub, Subscription};
use crate::error::{Error, Refusal};
use crate::event::{LockAbandoned, LocksRenewed, LossesToldLate, RenewalFailed, RenewalRecovered};
use crate::script::durability::confirmation;
use crate::script::look::Claim;
use crate::script::{Call, RenewalAnswer, RenewalAnswers};
use crate::state::ledger::Ledger;
use crate::state::ripening::Ripening;
use crate::state::watch::{All, Step, Watch};
use crate::time::Instant;
use crate::transport::{Fault, MachineNumber, PubSub, Question};

/// The watchdog of one server.
pub(crate) struct Worker {
    engine: Weak<Engine>,
    server: Arc<Server>,
    hub: Weak<Hub>,
    inbox: Arc<Inbox>,
    /// A connection of its own, so that the watchdog never waits behind callers.
    connection: DedicatedConnection,
    command_timeout: Duration,
    renewer: Renewer,
    next_round: Instant,
    ripening: Ripening<Weak<HoldState>>,
    watch: Watch,
    /// The subscription to changes of keys, while holds are watched.
    subscription: Option<Subscription>,
    next_step: Option<Instant>,
    /// The time since which no lock is held.
    empty_since: Option<Instant>,
    heartbeat: Arc<Heartbeat>,
}

impl Worker {
    /// `restarted` means that an earlier thread ended in the middle of its work. Returns `None` if the client has
    /// ended.
    pub(crate) fn new(
        engine: &Weak<Engine>,
        server: &Arc<Server>,
        hub: &Weak<Hub>,
        inbox: &Arc<Inbox>,
        restarted: bool,
    ) -> Option<Self> {
        let strong_engine = engine.upgrade()?;
        let config = &strong_engine.config;
        let now = Instant::now();
        let mut watch = Watch::new(now);
        if restarted {
            // The last step of the earlier thread is unknown.
            watch.begin();
            watch.lost(now);
        }
        let renewer = Renewer::new(now, config.watchdog_interval, config.watchdog_batch, config.command_timeout);
        Some(Self {
            engine: Weak::clone(engine),
            server: Arc::clone(server),
            hub: Weak::clone(hub),
            inbox: Arc::clone(inbox),
            connection: server.connection(),
            command_timeout: config.command_timeout,
            next_round: renewer.next_tick(),
            renewer,
            ripening: Ripening::new(now),
            watch,
            subscription: None,
            next_step: None,
            empty_since: None,
            heartbeat: Arc::clone(&strong_engine.heartbeat),
        })
    }

    pub(crate) fn run(&mut self, sleeper: &Sleeper) {
        loop {
            let times = [self.ripening.step_at(), self.inbox.next_names(), self.next_step];
            let until = times.into_iter().flatten().fold(self.next_round, Instant::min);
            let now = Instant::now();
            let until = now.after(now.nap_until(until));
            self.heartbeat.rests(now, until);
            self.connection.sleep(sleeper, until);
            self.heartbeat.wakes(Instant::now());
            let (Some(engine), Some(hub)) = (self.engine.upgrade(), self.hub.upgrade()) else { return };
            if engine.is_closed() {
                return;
            }
            self.turn(&engine, &hub);
        }
    }

    /// Handles new events and due work.
    fn turn(&mut self, engine: &Arc<Engine>, hub: &Arc<Hub>) {
        let now = Instant::now();
        let Events { flushed, lost } = self.inbox.take();
        if lost {
            self.watch.lost(now);
        }
        if flushed {
            self.watch.flushed();
        }
        self.rest(now, engine.registry.is_empty());
        let ripe = self.ripen(now);
        if !ripe.is_empty() && self.subscription.is_none() {
            // Without a listening thread losses are reported late; the next watched hold tries again.
            self.subscription = hub.watch().ok();
            self.watch.begin();
        }
        let all = self.see_to_watch(engine, hub);
        let Self { renewer, server, watch, connection, inbox, .. } = self;
        let mut round = ServerRound { engine, server, watch, connection, inbox, gone: 0, waited: Duration::ZERO };
        let mut holds = round.urgent();
        if round.is_watching() {
            holds.extend(ripe);
        }
        let asked = Asked { all, holds };
        let started = Instant::now();
        if asked.all.is_none() && asked.holds.is_empty() && started < self.next_round {
            return;
        }
        self.next_round = renewer.round(&mut round, &asked);
        let gone = round.gone;
        let now = Instant::now();
        if self.watch.found_gone(now, gone, asked.all.is_some()) {
            self.next_step = Some(now);
        }
        if asked.all.is_some() {
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

    /// Returns the holds that have lived long enough to be watched.
    fn ripen(&mut self, now: Instant) -> Vec<Arc<HoldState>> {
        match self.ripening.step_at() {
            Some(at) if at <= now => {
                let granted = self.inbox.take_granted(self.ripening.is_about_to_rest());
                self.ripening.step(now, granted).iter().filter_map(Weak::upgrade).collect()
            }
            None if !self.inbox.awaits_grants() => {
                self.ripening.begin(now);
                vec![]
            }
            _ => vec![],
        }
    }

    /// Sets up tracking. Returns the request about all holds, if one is due.
    fn see_to_watch(&mut self, engine: &Arc<Engine>, hub: &Arc<Hub>) -> Option<All> {
        loop {
            let now = Instant::now();
            let (link, ear) = (self.connection.generation(), hub.ear());
            // A silent server must not delay the next renewal.
            let deadline = now.after(self.command_timeout).min(self.next_round.max(now.after(SHORTEST_ATTEMPT)));
            let complaint = match self.watch.next(now, link, ear) {
                Step::Open => {
                    if self.connection.open(deadline).is_err() {
                        self.watch.failed(Instant::now());
                    }
                    continue;
                }
                Step::Track(number) => match self.connection.track(number, deadline) {
                    Ok(()) => {
                        self.watch.tracked();
                        continue;
                    }
                    Err(Fault::Refused(refusal))
                        if refusal.is_of_redirection() && self.watch.misled(Instant::now()) =>
                    {
                        hub.is_unknown(number);
                        continue;
                    }
                    Err(Fault::Refused(refusal)) if !refusal.is_transient() => {
                        let error = Error::refused(refusal);
                        if !self.watch.untracked() {
                            continue;
                        }
                        error
                    }
                    Err(_) => {
                        self.watch.failed(Instant::now());
                        continue;
                    }
                },
                Step::Complain(error) => error,
                Step::Ask(all) => return Some(all),
                Step::Rest(until) => {
                    self.next_step = until;
                    return None;
                }
            };
            let server = self.server.label();
            engine.observe(|observer| observer.losses_told_late(&LossesToldLate { server, error: complaint }));
        }
    }
}

/// The surroundings of one round: engine and server.
struct ServerRound<'a> {
    engine: &'a Arc<Engine>,
    server: &'a Arc<Server>,
    watch: &'a Watch,
    connection: &'a mut DedicatedConnection,
    inbox: &'a Inbox,
    /// The number of holds that were found gone.
    gone: usize,
    /// The time that this round has waited in vain for replicas.
    waited: Duration,
}

impl ServerRound<'_> {
    /// Whether a key that is read now is watched from then on.
    fn is_watching(&self) -> bool {
        self.watch.is_live(self.connection.generation())
    }

    fn request<T>(&mut self, call: &Call<T>, deadline: Instant) -> Result<T, Error> {
        let read = |reply: &_| call.read(reply);
        self.engine.heartbeat.rests(Instant::now(), deadline);
        // A renewal publishes nothing.
        let mut answer = match call.round_trips() {
            None => self.connection.request(&call.packed(PubSub::Plain), deadline, read),
            Some(round_trips) => self.connection.round_trips(deadline, |send| round_trips.run(send)),
        };
        if let Err(Fault::Refused(refusal)) = &answer
            && refusal.word() == "NOSCRIPT"
            && let Some(whole) = call.packed_with_source(PubSub::Plain)
        {
            answer = self.connection.request(&whole, deadline, read);
        }
        self.engine.heartbeat.wakes(Instant::now());
        // A late renewal finds its owner or changes nothing, so it needs no fence.
        answer.map_err(Fault::into_error)
    }

    /// Counts losses, adds the server to refusals, and leaves a replica, because the next connection may reach the
    /// master.
    fn look_through(&mut self, answers: &mut [RenewalAnswer]) {
        for answer in answers {
            match answer {
                RenewalAnswer::Renewed => {}
                RenewalAnswer::Lost(_) => self.gone += 1,
                RenewalAnswer::Refused(refusal) => {
                    *refusal = refusal.clone().at(self.server.label());
                    if refusal.is_of_replica() {
                        self.connection.hang_up();
                    }
                }
            }
        }
    }
}

impl ServerRound<'_> {
    /// Waits for the replicas of renewed holds, by one request for the batch. What they do not have is not renewed: at a
    /// master that was cut off from its replicas, another client may take the lock from the promoted replica.
    fn confirm(&mut self, batch: &[&Due], answers: &mut [RenewalAnswer]) {
        let renewed = batch.iter().zip(answers).filter(|(_, answer)| **answer == RenewalAnswer::Renewed);
        let mut waiting: Vec<_> =
            renewed.filter_map(|(due, answer)| Some((&due.hold, due.hold.durability()?, answer))).collect();
        let Some(needs) = Durability::all(waiting.iter().map(|(_, needs, _)| Some(*needs))) else { return };
        let Some((first, ..)) = waiting.first() else { return };
        // Replicas that are late delay the other holds of the server once, and not for each batch.
        let needs = if self.waited.is_zero() { needs } else { needs.at_most(SHORTEST_ATTEMPT) };
        let began = Instant::now();
        let patience = self.engine.config.command_timeout;
        let copies = (self.waited < patience).then(|| {
            self.engine.heartbeat.rests(began, began.after(needs.limit()));
            let copies = self.connection.confirm(&confirmation(&first.name, needs));
            self.engine.heartbeat.wakes(Instant::now());
            copies.ok()
        });
        let (copies, server) = (copies.flatten(), self.server.label());
        let mut is_late = false;
        for (hold, needs, answer) in &mut waiting {
            match needs.judge(copies.as_ref(), &server, "") {
                Ok(missing) => self.engine.tell_missing(&hold.name, missing),
                Err(_) => {
                    is_late = true;
                    **answer = RenewalAnswer::Refused(Refusal::no_replicas(&needs.shortfall(copies.as_ref(), &server)));
                }
            }
        }
        if is_late {
            self.waited += began.until(Instant::now());
        }
    }
}

impl RenewalHost for ServerRound<'_> {
    fn holds(&self) -> Vec<Arc<HoldState>> {
        self.engine.registry.all().into_iter().filter(|hold| self.engine.is_on(self.server, hold)).collect()
    }

    fn urgent(&mut self) -> Vec<Arc<HoldState>> {
        let names = self.inbox.take_names(Instant::now());
        names.iter().flat_map(|name| self.engine.registry.under(name)).collect()
    }

    fn with_ledger<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        self.engine.with_ledger(hold, use_ledger)
    }

    fn abandon(&self, hold: &Arc<HoldState>) {
        if !self.engine.registry.contains(hold) {
            // The hold was released or left to expire before the end of its thread.
            return;
        }
        self.engine.watch_until_deadline(hold);
        self.engine.observe(|observer| {
            observer.abandoned(&LockAbandoned {
                name: hold.name.to_string(),
                kind: hold.label(),
                group: hold.group_name(),
                owner: hold.owner.to_string(),
            });
        });
    }

    fn renew(&mut self, batch: &[&Due], deadline: Instant) -> Result<RenewalAnswers, Error> {
        batch.iter().for_each(|due| due.hold.watch());
        let renewals: Vec<_> = batch.iter().filter_map(|due| renewal(self, due)).collect();
        let mut answers = self.request(&batch[0].hold.kind.renew(&renewals), deadline)?;
        self.look_through(&mut answers.answers);
        self.confirm(batch, &mut answers.answers);
        Ok(answers)
    }

    fn look(&mut self, batch: &[&Due], deadline: Instant) -> Result<Vec<RenewalAnswer>, Error> {
        batch.iter().for_each(|due| due.hold.watch());
        let claim = |due: &&Due| Claim { name: due.hold.name.clone(), owner: due.hold.owner.clone() };
        let claims: Vec<_> = batch.iter().map(claim).collect();
        let mut answers = self.request(&batch[0].hold.kind.look(&claims), deadline)?;
        if answers.iter().any(|answer| matches!(answer, RenewalAnswer::Lost(_))) {
            // A server that became a replica replies, too, and may lack data of the master.
            self.connection.check_role(deadline).map_err(Fault::into_error)?;
        }
        self.look_through(&mut answers);
        Ok(answers)
    }

    fn machine(&self) -> MachineNumber {
        self.connection.machine()
    }

    fn renewed(&self, hold: &Arc<HoldState>) {
        self.engine.schedule_if_observed(hold);
    }

    fn failed(&self, locks: usize, remaining: Duration, error: Error) {
        self.engine.observe(|observer| {
            observer.renewal_failed(&RenewalFailed { server: self.server.label(), locks, remaining, error });
        });
    }

    fn renewed_in_round(&self, locks: usize) {
        self.engine.observe(|observer| observer.renewed(&LocksRenewed { server: self.server.label(), locks }));
    }

    fn recovered(&self, outage: Duration) {
        self.engine.observe(|observer| {
            observer.recovered(&RenewalRecovered { server: self.server.label(), outage });
        });
    }
}

/// The time for which connections outlive the last hold, because the next hold may need them.
const LINGER: Duration = Duration::from_secs(3);
/// With less time left, a reply would probably arrive too late.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);
