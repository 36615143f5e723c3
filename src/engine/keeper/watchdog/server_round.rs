//! One round of the watchdog of one server: the renewals and checks as requests.

use std::sync::Arc;
use std::time::Duration;

use crate::conn::{DedicatedConnection, Redirect, Route, Server};
use crate::durability::Durability;
use crate::engine::hold::HoldState;
use crate::engine::keeper::Keeper;
use crate::engine::keeper::watchdog::Watchdog;
use crate::engine::keeper::watchdog::renewer::{Detour, Due, RenewalHost, RequestOutcome, renewal};
use crate::error::{Error, Refusal};
use crate::event::{LockAbandoned, LocksRenewed, Observer, RenewalFailed, ServerRecovered};
use crate::script::look::Claim;
use crate::script::{Call, RenewalAnswer, pipelined};
use crate::state::exchange::Bounds;
use crate::state::ledger::Ledger;
use crate::state::watch::Watch;
use crate::time::{Instant, Lease};
use crate::transport::{Copies, Fault, PubSub, Slot};

/// The surroundings of one round: the keeper and the server.
pub(super) struct ServerRound<'a> {
    pub(super) keeper: &'a Keeper,
    pub(super) server: &'a Arc<Server>,
    pub(super) watch: &'a Watch,
    pub(super) connection: &'a mut DedicatedConnection,
    pub(super) watchdog: &'a Watchdog,
    pub(super) nothing_here: &'a mut bool,
    /// The number of holds that were found gone.
    pub(super) gone: usize,
    /// The waits for replicas that were too short for some holds of this round.
    pub(super) late: Option<Late>,
}

/// Waits for replicas in vain.
pub(super) struct Late {
    /// The time of the waits, of which the first one counts as a short one.
    waited: Duration,
    /// The copies that the last wait with a promise of success has reached.
    reached: Option<Copies>,
}

impl ServerRound<'_> {
    /// Whether a key that is read now is watched from then on.
    pub(super) fn is_watching(&self) -> bool {
        self.watch.is_live(self.connection.generation())
    }

    /// Sends several calls in one write, or one call of several round trips.
    fn requests<T>(&mut self, calls: &[Call<T>], deadline: Instant) -> Result<Vec<Result<T, Refusal>>, Fault> {
        let look = if let [call] = calls { call.round_trips() } else { None };
        let answers = self.connection.round_trips(deadline, |send| match look {
            Some(look) => Ok(vec![Ok(look(send, PubSub::Plain)?)]),
            None => pipelined(calls, PubSub::Plain, send),
        });
        match answers {
            Ok(answers) => {
                Ok(answers.into_iter().map(|answer| answer.map_err(|refusal| self.named(refusal))).collect())
            }
            Err(Fault::Refused(refusal)) if calls.len() == 1 => Ok(vec![Err(refusal)]),
            Err(fault) => {
                // After a missing answer another server may have taken the place of this one.
                if !matches!(fault, Fault::Refused(_)) {
                    self.keeper.sender.topology.doubt(self.server.number());
                }
                Err(fault)
            }
        }
    }

    /// Adds the server to a refusal, and leaves a connection whose next one may lead to the master, or log in.
    fn named(&mut self, refusal: Refusal) -> Refusal {
        if refusal.is_of_replica() {
            self.connection.leave_replica();
        } else if refusal.is_of_login() {
            self.connection.hang_up();
        }
        let refusal = refusal.at(self.server.label());
        if self.keeper.sender.topology.has_slots() { refusal.in_cluster() } else { refusal }
    }

    /// Fails where a replica tells of a loss: a server that became one replies to reads, too, and may lack data of the
    /// master.
    fn check_losses<'a>(
        &mut self,
        answers: impl IntoIterator<Item = &'a RenewalAnswer>,
        deadline: Instant,
    ) -> Result<(), Error> {
        if answers.into_iter().any(|answer| matches!(answer, RenewalAnswer::Lost(_))) {
            self.connection.check_role(deadline).map_err(Fault::into_error)?;
        }
        Ok(())
    }

    /// Counts losses, and adds the server to refusals.
    fn look_through(&mut self, answers: &mut [RenewalAnswer]) {
        for answer in answers {
            match answer {
                RenewalAnswer::Renewed => {}
                RenewalAnswer::Lost(_) => self.gone += 1,
                RenewalAnswer::Refused(refusal) => *refusal = self.named(refusal.clone()),
            }
        }
    }

    /// Waits for the replicas of holds that were renewed by requests sent after `sent`, by one request for the batch. A
    /// hold that the replicas lack is not renewed: where a master is cut off from its replicas, another client may take
    /// the lock from the promoted replica. Renewals of other holds count before the wait.
    fn confirm<'a>(&mut self, sent: Instant, answers: impl Iterator<Item = (&'a Due, &'a mut RenewalAnswer)>) {
        let (mut waiting, mut others) = (vec![], vec![]);
        for (due, answer) in answers.filter(|(_, answer)| **answer == RenewalAnswer::Renewed) {
            match due.hold.needs() {
                Some(needs) => waiting.push((&due.hold, needs, answer)),
                None => others.extend(due.turn.lease.map(|lease| (&due.hold, lease))),
            }
        }
        if waiting.is_empty() {
            return;
        }
        for (hold, lease) in others {
            self.with_ledger(hold, |ledger, _| ledger.renewed(sent, lease));
        }
        let began = Instant::now();
        let (needs, is_promising) = self.next_wait(waiting.iter().map(|(_, needs, _)| *needs));
        let copies = needs.and_then(|needs| {
            let mut confirm = |hold: &HoldState| self.connection.confirm(&hold.kind.confirmation(&hold.name, needs));
            let mut copies = waiting.iter().take(MOST_TOUCHED).map(|(hold, ..)| confirm(hold));
            // A hold that was released meanwhile has no key to touch.
            copies.find(|copies| *copies != Some(Copies::Gone)).unwrap_or(Some(Copies::Gone))
        });
        let server = self.server.label();
        let mut is_late = false;
        for (hold, needs, answer) in &mut waiting {
            match needs.judge(copies.as_ref(), &server, "") {
                Ok(missing) => self.keeper.sender.tell_missing(&hold.name, missing),
                Err(_) => {
                    is_late = true;
                    let shortfall = needs.shortfall(copies.as_ref(), "").unwrap_or_default();
                    **answer = RenewalAnswer::Refused(Refusal::no_replicas(&shortfall).at(server.clone()));
                }
            }
        }
        if is_late {
            let late = self.late.take();
            // The first wait, however long, leaves the others their time.
            let waited =
                late.as_ref().map_or(SHORTEST_ATTEMPT, |late| late.waited.saturating_add(began.until(Instant::now())));
            let reached = if is_promising { copies } else { late.and_then(|late| late.reached) };
            self.late = Some(Late { waited, reached });
        }
    }

    /// The aim of the next wait of this round, if there is one, and whether it promises success. Replicas that are late
    /// delay the other holds of the server once, and not for each batch: after a wait in vain only what that wait has
    /// reached is waited for, and anything else for a moment.
    fn next_wait(&self, all: impl Iterator<Item = Durability> + Clone) -> (Option<Durability>, bool) {
        let Some(Late { waited, reached }) = &self.late else {
            return (Durability::all(all.map(Some)).map(|needs| needs.at_most(self.longest_wait())), true);
        };
        let left = self.keeper.config.command_timeout.saturating_sub(*waited);
        if left.is_zero() {
            return (None, false);
        }
        let promising = all.clone().filter(|needs| needs.judge(reached.as_ref(), "", "").is_ok());
        let promising = Durability::all(promising.map(Some));
        let brief = || Durability::all(all.map(Some)).map(|needs| needs.at_most(SHORTEST_ATTEMPT));
        (promising.map(|needs| needs.at_most(left)).or_else(brief), promising.is_some())
    }

    /// The longest wait for replicas. A section with a long lease may have more time than the other holds can spare.
    fn longest_wait(&self) -> Duration {
        self.keeper.watchdog_lease.duration() / 2
    }
}

impl RenewalHost for ServerRound<'_> {
    fn holds(&mut self) -> Vec<Arc<HoldState>> {
        let (now, mut here) = (Instant::now(), self.keeper.cells.registry.all());
        here.retain(|hold| {
            let at = self.keeper.sender.server(&hold.name);
            let is_here = Arc::ptr_eq(self.server, &at);
            // A slot may have moved to a server where this client has no watchdog. Where it has one, the next renewal
            // may be far away, and a lease is never renewed.
            if !is_here && hold.since.after(LONGEST_STAY) <= now && !hold.is_watched_at(at.number()) {
                self.hand_over(hold);
            }
            is_here
        });
        *self.nothing_here = here.is_empty();
        here
    }

    fn urgent(&mut self) -> Vec<Arc<HoldState>> {
        let registry = &self.keeper.cells.registry;
        let mut urgent = vec![];
        // A hold that is dropped may drop a client, so none is dropped under the mutex of the watchdog.
        self.watchdog.take_names(Instant::now(), |name| {
            let before = urgent.len();
            urgent.extend(registry.under(name));
            urgent.len() - before
        });
        urgent
    }

    fn with_ledger<T>(&self, hold: &HoldState, use_ledger: impl FnOnce(&mut Ledger, Instant) -> T) -> T {
        self.keeper.with_ledger(hold, use_ledger)
    }

    fn abandon(&self, hold: &Arc<HoldState>, is_new: bool) {
        let registry = &self.keeper.cells.registry;
        // A hold may have been released or left to expire before the end of its thread.
        let is_told = is_new && registry.contains(hold);
        if hold.is_dead() {
            registry.remove(hold);
        }
        if !is_told {
            return;
        }
        self.keeper.schedule_check(hold);
        self.keeper.config.observe(Observer::abandoned, || LockAbandoned::of(hold.in_events()));
    }

    fn ask(&mut self, requests: &[Vec<&Due>], deadline: Instant) -> Result<Vec<RequestOutcome>, Error> {
        let sent = Instant::now();
        requests.iter().flatten().for_each(|due| due.hold.watch(self.server.number()));
        let call = |request: &Vec<&Due>| {
            let kind = &request[0].hold.kind;
            if request[0].turn.is_look() {
                return kind.look(&request.iter().map(|due| claim(self, due)).collect::<Vec<_>>());
            }
            kind.renew(&request.iter().filter_map(|due| renewal(self, due)).collect::<Vec<_>>())
        };
        let calls: Vec<_> = requests.iter().map(call).collect();
        // A late renewal finds its owner or changes nothing, so it needs no fence.
        let mut outcomes = self.requests(&calls, deadline).map_err(Fault::into_error)?;
        self.check_losses(outcomes.iter().flatten().flatten(), deadline)?;
        for answers in outcomes.iter_mut().filter_map(|outcome| outcome.as_mut().ok()) {
            self.look_through(answers);
        }
        if !requests[0][0].turn.is_look() {
            let all = requests.iter().zip(&mut outcomes);
            let answers = all.filter_map(|(request, one)| Some(request.iter().copied().zip(one.as_mut().ok()?)));
            self.confirm(sent, answers.flatten());
        }
        Ok(outcomes)
    }

    fn ask_by_route(&mut self, due: &Due, deadline: Instant) -> Result<RenewalAnswer, Error> {
        let (now, hold, sender) = (Instant::now(), &due.hold, &self.keeper.sender);
        // A slot that moves may take longer than the watchdog can wait: the next round tries again. A late renewal
        // finds its owner or changes nothing, so it needs no fence.
        let bounds = Bounds { fences: false, ..Bounds::once(now, now.until(deadline)) };
        let (call, confirmation) = match renewal(self, due) {
            Some(renewal) => {
                let needs = hold.needs().map(|needs| needs.at_most(self.longest_wait()));
                (hold.kind.renew(&[renewal]), needs.map(|needs| hold.kind.confirmation(&hold.name, needs)))
            }
            None => (hold.kind.look(&[claim(self, due)]).following_its_key(), None),
        };
        let call = call.confirmed(confirmation.clone(), |answers| RenewalAnswer::is_renewed(answers));
        let mut answer = sender.send(&call, bounds, None).map_err(|failed| failed.error)?;
        let needs =
            confirmation.filter(|_| RenewalAnswer::is_renewed(&answer.value)).map(|confirmation| confirmation.needs);
        let missing = sender.judge(&hold.name, needs, answer.copies.as_ref(), "its renewal does not count")?;
        sender.tell_missing(&hold.name, missing);
        self.look_through(&mut answer.value);
        answer.value.into_iter().next().ok_or_else(Error::odd_count)
    }

    fn detour(&self, refusal: &Refusal) -> Detour {
        match self.keeper.sender.topology.redirect(self.server.number(), refusal) {
            Redirect::AsItSays => Detour::None,
            // No server has the slot, so no other way leads to an answer.
            Redirect::Later if refusal.word() == "CLUSTERDOWN" => Detour::None,
            Redirect::Elsewhere(Route { asking: false, .. }) => Detour::Moved,
            Redirect::Elsewhere(_) | Redirect::Later => Detour::ByKey,
        }
    }

    fn hand_over(&self, hold: &Arc<HoldState>) -> bool {
        // A tenth of a tick is the pause before a failed renewal is repeated.
        let pause = (self.keeper.config.watchdog_interval / 10).min(LONGEST_STAY);
        let server = self.keeper.sender.server(&hold.name);
        if Arc::ptr_eq(self.server, &server) || !hold.moves_on(Instant::now(), pause) {
            return false;
        }
        // The other watchdog renews the hold at once.
        let watchdog = self.keeper.watchdog(&server);
        watchdog.put(|events| events.moved.push(Arc::downgrade(hold)));
        watchdog.granted(hold) || watchdog.start(self.keeper, &server)
    }

    fn slot(&self, hold: &HoldState) -> Slot {
        self.keeper.sender.topology.slot(hold.name.key())
    }

    fn renewed(&self, hold: &Arc<HoldState>) {
        self.keeper.schedule_if_observed(hold);
    }

    fn failed(&self, locks: usize, remaining: Duration, error: Error) {
        let event = || RenewalFailed { server: self.server.label(), locks, remaining, error };
        self.keeper.config.observe(Observer::renewal_failed, event);
    }

    fn renewed_in_round(&self, locks: usize) {
        self.keeper.config.observe(Observer::renewed, || LocksRenewed { server: self.server.label(), locks });
    }

    fn recovered(&self, outage: Duration) {
        self.keeper.config.observe(Observer::recovered, || ServerRecovered { server: self.server.label(), outage });
    }
}

fn claim(host: &impl RenewalHost, due: &Due) -> Claim {
    let left = host.with_ledger(&due.hold, |ledger, now| Lease::until(now, ledger.end));
    Claim { name: due.hold.name.clone(), owner: due.hold.owner.clone(), left }
}

/// So many holds of a batch are touched until one is there.
const MOST_TOUCHED: usize = 3;
/// A hold that was granted or handed over stays this long at most.
const LONGEST_STAY: Duration = Duration::from_secs(1);
/// With less time left, a reply would probably arrive too late.
const SHORTEST_ATTEMPT: Duration = Duration::from_millis(50);
