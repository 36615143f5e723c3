//! Most of several locks on independent servers: the rounds of a red lock.

use std::time::Duration;

use super::Terms;
use super::votes::{Verdict, Vote, Votes, majority};
use crate::engine::acquire::waiting::Waiting;
use crate::engine::several::asking::{self, Heard, Reply};
use crate::engine::several::giving_back::reenter_at_once;
use crate::engine::several::{LONGEST_FAREWELL, Take};
use crate::engine::{AcquireRequest, Engine, Grant, Wait};
use crate::error::{Error, ErrorKind, Result};
use crate::kinds::Queueing;
use crate::state::exchange::Bounds;
use crate::state::wait_loop::{TakeOutcome, WaitLoop};
use crate::system::random;
use crate::time::{Deadline, Instant};
use crate::transport::Fitness;

/// One take of most of several locks. Dropping the value gives the locks back.
pub(crate) struct Most<'a> {
    take: Take<'a>,
    terms: Terms,
    votes: Votes,
    waiting: Vec<Waiting<'a>>,
    /// Whether the next sleep ends with a message.
    hears_messages: bool,
    /// The start of the rounds in which too few nodes answered, and the error of the last of them.
    without_quorum: Option<(Instant, Error)>,
}

impl<'a> Most<'a> {
    pub(crate) fn new(take: Take<'a>, terms: Terms) -> Self {
        let requests = take.requests;
        let waiting = |request| Waiting::for_lock(request, take.thread.clone(), take.caller, take.wait);
        let patience = requests.iter().map(|request| request.engine.config.command_timeout);
        let node_timeout = patience.fold(terms.node_timeout, Duration::min);
        Self {
            terms: Terms { node_timeout, ..terms },
            votes: Votes::new(majority(requests.len())),
            waiting: requests.iter().map(waiting).collect(),
            hears_messages: false,
            without_quorum: None,
            take,
        }
    }

    /// Takes most of the locks, or none. The grants are in the order of the requests, with nothing for a missing one.
    pub(crate) fn run(mut self) -> Result<Option<Vec<Option<Grant>>>> {
        let mut outcome = self.take.wait.take(&mut self);
        if let (Ok(None), Some((_, error))) = (&outcome, self.without_quorum.take()) {
            outcome = Err(error);
        }
        if !matches!(outcome, Ok(Some(_))) {
            self.waiting[0].gave_up(outcome.as_ref().err());
        }
        outcome
    }

    /// Asks every node once: re-enters what this thread holds, and asks for the rest. Returns the replies, and whether
    /// each is about a re-entry.
    fn ask_all(&mut self) -> Vec<(Heard, bool)> {
        let skips_down = self.has_quorum_up();
        let mut replies = self.reenter_all(skips_down);
        let missing: Vec<usize> = (0..self.take.requests.len()).filter(|place| replies[*place].is_none()).collect();
        let asking = missing.iter().map(|place| self.take.acquisition(*place, Wait::Not));
        let (limit, rejoin_after) = (self.limit(), self.terms.rejoin_after);
        let longest = self.take.requests.iter().map(|request| request.lease.duration()).max();
        let usual = |engine: &Engine| engine.keeper.watchdog_lease.duration().max(longest.unwrap_or_default());
        let vote = |engine: &Engine, _| {
            let age = Some(rejoin_after.unwrap_or_else(|| usual(engine)));
            at_nodes(limit, Fitness { is_up: skips_down, age, advice: ADVICE })
        };
        let asked = asking::ask_at_once(asking.collect(), self.take.caller, vote);
        for request in self.take.requests {
            request.engine.sender.try_again_later(request.name);
        }
        let is_reentry: Vec<bool> = replies.iter().map(Option::is_some).collect();
        for (place, reply) in missing.into_iter().zip(asked) {
            replies[place] = Some(reply);
        }
        replies.into_iter().flatten().zip(is_reentry).collect()
    }

    /// Whether enough servers are not down. After a stop of this process all of them seem down, and are worth a
    /// request.
    fn has_quorum_up(&self) -> bool {
        let now = Instant::now();
        let is_up = |waiting: &&Waiting<'_>| waiting.node.server.why_down(now).is_none();
        self.waiting.iter().filter(is_up).count() >= self.votes.needed
    }

    /// Re-enters the locks that this thread holds, all servers at once. A lost hold does not vote.
    fn reenter_all(&self, skips_down: bool) -> Vec<Option<Heard>> {
        let find = |(place, request): (usize, &'a AcquireRequest<'a>)| {
            Some((place, (request, request.held_by(self.take.thread.as_ref())?)))
        };
        let (places, held): (Vec<usize>, Vec<_>) = self.take.requests.iter().enumerate().filter_map(find).unzip();
        let bounds = |_: &Engine| at_nodes(self.limit(), Fitness { is_up: skips_down, ..Fitness::default() });
        let mut replies: Vec<Option<Heard>> = self.take.requests.iter().map(|_| None).collect();
        for (place, outcome) in places.into_iter().zip(reenter_at_once(&held, bounds, self.take.caller)) {
            replies[place] = Some(Heard { reply: outcome.map(Reply::Granted), run_id: None });
        }
        replies
    }

    /// The error of two addresses that lead to one server, which would vote twice.
    fn same_server(&self, replies: &[(Heard, bool)]) -> Option<Error> {
        let run = |place: usize| replies[place].0.run_id.as_ref();
        let mut pairs = (0..replies.len()).flat_map(|one| (0..one).map(move |other| (other, one)));
        let (one, other) = pairs.find(|(one, other)| run(*one).is_some() && run(*one) == run(*other))?;
        let [one, other] = [one, other].map(|place| self.waiting[place].node.server.label());
        let text = format!("redis at {one} and at {other} is the same server, and its vote counts once");
        Some(Error::new(ErrorKind::BadInput, text))
    }

    fn give_back(&mut self) {
        let limit = self.limit();
        self.take.give_back(|_| true, |_| Bounds::once(Instant::now(), limit));
    }

    /// The time limit of the next request to one server.
    fn limit(&self) -> Duration {
        let left = self.take.end.map(|end| Instant::now().until(end).max(LONGEST_FAREWELL));
        left.map_or(self.terms.node_timeout, |left| left.min(self.terms.node_timeout))
    }

    /// The error of a round in which too few nodes voted.
    fn no_quorum(&self, errors: &[Error]) -> Error {
        let is_of_caller = |kind| matches!(kind, ErrorKind::AlreadyHeld | ErrorKind::Closed | ErrorKind::Cancelled);
        if let Some(error) = errors.iter().find(|error| is_of_caller(error.kind())) {
            return error.clone();
        }
        let texts: Vec<String> = errors.iter().map(Error::to_string).collect();
        let (silent, all) = (errors.len(), self.take.requests.len());
        let needed = self.votes.needed;
        let text = format!("{silent} of {all} nodes did not vote, and {needed} votes are needed: {}", texts.join("; "));
        Error::new(ErrorKind::Quorum, text)
    }

    /// Records a round that found too few nodes. Fails where the caller gives up before its deadline.
    fn record_no_quorum(&mut self, errors: &[Error], now: Instant) -> Result<()> {
        let error = self.no_quorum(errors);
        let (since, last) = self.without_quorum.get_or_insert_with(|| (now, error.clone()));
        last.clone_from(&error);
        // A node that refuses for good will not vote in a later round either.
        let for_good = errors.iter().filter(|error| !error.is_transient()).count();
        let outage_limit = self.take.requests[0].engine.config.outage_limit;
        let is_over = self.take.wait.deadline() == Deadline::Never && now >= since.after(outage_limit);
        if is_over || for_good > self.take.requests.len() - self.votes.needed { Err(error) } else { Ok(()) }
    }
}

impl WaitLoop for Most<'_> {
    type Grant = Vec<Option<Grant>>;

    fn now(&self) -> Instant {
        Instant::now()
    }

    fn stand_back(&mut self) -> Result<()> {
        if self.take.requests.iter().any(|request| request.held_by(self.take.thread.as_ref()).is_some()) {
            return Ok(());
        }
        self.take.stand_back()
    }

    fn attempt(&mut self) -> Result<TakeOutcome<Self::Grant>> {
        self.take.caller.check()?;
        let sent = Instant::now();
        let replies = self.ask_all();
        let (mut votes, mut errors) = (vec![], vec![]);
        let twice = self.same_server(&replies);
        let held = replies.iter().filter(|(_, is_reentry)| *is_reentry).count();
        for (place, (heard, _)) in replies.into_iter().enumerate() {
            votes.push(match heard.reply {
                Ok(Reply::Granted(grant)) => {
                    let keeper = &self.take.requests[place].engine.keeper;
                    let until = keeper.with_ledger(&grant.0, |ledger, _| ledger.good_until);
                    self.take.grants[place] = Some(grant);
                    Vote::Granted { until }
                }
                Ok(Reply::Busy(free_in)) => Vote::Busy(free_in),
                Ok(Reply::Passed) => Vote::Busy(Duration::ZERO),
                Err(error) => {
                    errors.push(error);
                    Vote::Absent
                }
            });
        }
        if let Some(error) = twice {
            return Err(error);
        }
        let now = Instant::now();
        let verdict = self.votes.verdict(&votes, sent, now, random);
        // An outer section of this thread believes in its hold. Where that hold is lost, no fresh votes may replace it.
        let losses = errors.iter().filter(|error| error.is_lost()).count();
        let lost = errors.iter().find(|error| error.is_lost()).filter(|_| held < self.votes.needed + losses);
        if verdict == Verdict::Taken && lost.is_none() {
            self.waiting[0].granted();
            return Ok(TakeOutcome::Taken(self.take.granted()));
        }
        self.give_back();
        if let Some(lost) = lost {
            return Err(lost.clone());
        }
        let now = Instant::now();
        // Silent servers keep a holder from its lock, and no other owner does.
        if (held >= self.votes.needed && !errors.is_empty()) || matches!(verdict, Verdict::TooFew { .. }) {
            self.record_no_quorum(&errors, now)?;
        } else {
            self.without_quorum = None;
        }
        self.hears_messages = matches!(verdict, Verdict::Busy { .. });
        match verdict {
            Verdict::Split { pause } | Verdict::TooFew { pause } => Ok(TakeOutcome::Busy(pause)),
            Verdict::Busy { wait } => Ok(TakeOutcome::Busy(wait)),
            Verdict::Taken => Ok(TakeOutcome::Busy(Duration::ZERO)),
        }
    }

    fn pause(&mut self, busy: Duration) -> Option<Duration> {
        Some(busy)
    }

    fn arm(&mut self) -> Result<bool> {
        let mut is_new = false;
        if self.hears_messages {
            for (request, waiting) in self.take.requests.iter().zip(&mut self.waiting) {
                if request.kind.queueing() != Queueing::InRedis {
                    // A node that refuses to be listened to is asked again after a pause.
                    is_new |= waiting.arm().unwrap_or(false);
                }
            }
        }
        Ok(is_new)
    }

    fn sleep(&mut self, until: Instant) -> Result<()> {
        loop {
            self.waiting[0].sleep(until)?;
            // Callers that share the votes are woken by the same messages, and would meet again.
            if self.hears_messages || Instant::now() >= until {
                return Ok(());
            }
        }
    }
}

impl Drop for Most<'_> {
    /// Also after a panic.
    fn drop(&mut self) {
        self.give_back();
    }
}

/// The bounds of one request to one server: sent once, if the server is fit for it.
fn at_nodes(limit: Duration, fitness: Fitness) -> Bounds {
    Bounds { fitness, ..Bounds::once(Instant::now(), limit) }
}

/// The advice about a server that started lately.
const ADVICE: &str = "with_rejoin_after() sets that time, and is zero for new servers";
