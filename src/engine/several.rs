//! Several locks as one: the members, the rule, and the ways to take, keep and release them together.

mod all;
pub(crate) mod asking;
pub(crate) mod giving_back;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::acquire::acquisition::Acquisition;
use crate::engine::acquire::stand_back::stand_back;
use crate::engine::caller::Caller;
use crate::engine::handle::{Handle, Operation};
use crate::engine::life::Life;
use crate::engine::parts::{Bundle, Engine};
use crate::engine::request::{AcquireRequest, Grant, Modifiers, Wait};
use crate::error::{Error, ErrorKind, Loss, Result};
use crate::event::{Observer, TakeEnded};
use crate::kinds::Kind;
use crate::listing::LockKind;
use crate::name::LockName;
use crate::owner::ThreadId;
use crate::script::bundle::MOST_PARTS;
use crate::state::exchange::Bounds;
use crate::state::stand_back::Turn;
use crate::time::{Deadline, Instant};
use all::All;
use giving_back::{Held, release_at_once};

/// Several locks that are taken together.
pub(crate) struct Members {
    kind: LockKind,
    /// The name of the group, for texts and events.
    pub(crate) name: Arc<str>,
    pub(crate) members: Vec<SingleLock>,
    /// The modifiers of each member.
    pub(crate) modifiers: Vec<Modifiers>,
    /// The members in the canonical order, by name and server.
    order: Vec<usize>,
    pub(crate) form: Arc<dyn Form>,
}

/// A lock of one name, alone or in a group.
#[derive(Clone, Debug)]
pub(crate) struct SingleLock {
    pub(crate) handle: Handle,
    pub(crate) kind: Arc<dyn Kind>,
    pub(crate) name: LockName,
}

/// A way to take several locks as one.
pub(crate) trait Form: fmt::Debug + Send + Sync + UnwindSafe + RefUnwindSafe {
    /// What texts call such a lock.
    fn noun(&self) -> &'static str;

    /// The kind of a lock with these members, for events, and its name. Refuses members that cannot be taken together.
    fn kind_and_name(&self, members: &[SingleLock]) -> Result<(LockKind, String)>;

    /// How many of so many members must be held.
    fn needs(&self, members: usize) -> usize;

    /// The time limit of a request to one server, where each server has a time of its own. Then each lock stands for
    /// its server, so such a lock is no part of another one, and has no group among its locks.
    fn limit_each(&self) -> Option<Duration>;

    /// Takes the members; `None` when other owners kept too many until the deadline. The grants are in the order of
    /// the requests, with nothing for a lock that was not granted.
    fn take(&self, take: Take<'_>) -> Result<Option<Vec<Option<Grant>>>>;
}

/// One take of several locks.
pub(crate) struct Take<'a> {
    /// In the canonical order.
    pub(crate) requests: &'a [AcquireRequest<'a>],
    pub(crate) caller: &'a Caller<'a>,
    pub(crate) thread: Option<ThreadId>,
    pub(crate) wait: Wait,
    pub(crate) began: Instant,
    /// The end of the last request of the call, except that what is held is given back; `None` for a wait without
    /// limit.
    pub(crate) end: Option<Instant>,
    /// What the take holds, in the order of the requests.
    pub(crate) grants: Vec<Option<Grant>>,
}

impl<'a> Take<'a> {
    pub(crate) fn acquisition(&self, place: usize, wait: Wait) -> Acquisition<'a> {
        Acquisition::new(&self.requests[place], self.thread.clone(), self.caller, wait).part_of(self.began, self.wait)
    }

    /// Waits while other processes have their turn at any of the locks.
    pub(crate) fn stand_back(&self) -> Result<()> {
        let wanted = self.requests.iter().map(|request| (request.engine, request.name, Some(&**request.kind)));
        stand_back(wanted, self.wait.deadline(), |until| self.caller.sleep(until))
    }

    /// Gives back what the take holds at these places. What is not given back within the bounds is cleared away in the
    /// background; a lost lock is no news here.
    pub(crate) fn give_back(&mut self, concerns: impl Fn(usize) -> bool, bounds: impl Fn(&Engine) -> Bounds) {
        let places = (0..self.requests.len()).filter(|place| concerns(*place));
        let grants: Vec<_> =
            places.filter_map(|place| Some((self.requests[place].engine, self.grants[place].take()?))).collect();
        let held: Vec<_> = grants.iter().map(|(engine, (hold, guard))| Held { engine, hold, guard: *guard }).collect();
        if !held.is_empty() {
            drop(release_at_once(&held, bounds));
        }
    }

    /// The grants of a take that succeeded.
    pub(crate) fn granted(&mut self) -> Vec<Option<Grant>> {
        self.grants.iter_mut().map(Option::take).collect()
    }
}

/// All of several locks.
#[derive(Debug)]
pub(crate) struct Multi;

impl Form for Multi {
    fn noun(&self) -> &'static str {
        "multi-lock"
    }

    fn kind_and_name(&self, members: &[SingleLock]) -> Result<(LockKind, String)> {
        let is_group = members.iter().all(|member| member.kind.family() == "group");
        let kind = if is_group { LockKind::Group } else { LockKind::Multi };
        Ok((kind, list(kind.as_str(), members)))
    }

    fn needs(&self, members: usize) -> usize {
        members
    }

    fn limit_each(&self) -> Option<Duration> {
        None
    }

    fn take(&self, take: Take<'_>) -> Result<Option<Vec<Option<Grant>>>> {
        All::new(take).run()
    }
}

impl Members {
    /// Checks the members; nothing is sent.
    pub(crate) fn new(members: Vec<(SingleLock, Modifiers)>, form: Arc<dyn Form>) -> Result<Self> {
        let (members, modifiers): (Vec<SingleLock>, Vec<Modifiers>) = members.into_iter().unzip();
        let noun = form.noun();
        let bad = |text: String| Error::new(ErrorKind::BadInput, text);
        if members.is_empty() {
            return Err(bad(format!("a {noun} needs at least one lock, a group lock at least one value")));
        }
        if members.len() > MOST_MEMBERS {
            return Err(bad(format!("a {noun} has at most {MOST_MEMBERS} locks; this one has {}", members.len())));
        }
        if let Some(member) = members.iter().find(|member| !member.kind.runs_scripts()) {
            let text = format!("a token lock is part of a {noun} only with ReleaseBy::Script");
            return Err(bad(text).about(&member.name));
        }
        let (kind, name) = form.kind_and_name(&members)?;
        // By name first: what a client calls a server, and which server has a name, is not the same for all callers.
        let places: Vec<(&LockName, String)> =
            members.iter().map(|member| (&member.name, member.handle.server_of(&member.name))).collect();
        let mut order: Vec<usize> = (0..members.len()).collect();
        order.sort_by(|one, other| places[*one].cmp(&places[*other]));
        if let Some(twice) = order.windows(2).find(|pair| places[pair[0]] == places[pair[1]]) {
            let text = format!("the {noun} has this lock twice, and would wait for itself; name each lock once");
            return Err(bad(text).about(places[twice[0]].0));
        }
        Ok(Self { kind, name: name.into(), members, modifiers, order, form })
    }

    /// How many of the members must be held.
    pub(crate) fn needed(&self) -> usize {
        self.form.needs(self.members.len())
    }

    /// The bounds of the next request about one of the locks, in a call that began at `began` and has this limit.
    pub(crate) fn bounds(&self, engine: &Engine, began: Instant, limit: Duration) -> Bounds {
        match self.form.limit_each() {
            Some(limit_each) => {
                let left = Instant::now().until(began.after(limit)).max(LONGEST_FAREWELL.min(limit));
                Bounds::once(Instant::now(), limit_each.min(left))
            }
            None => Bounds::within(began, limit, engine.config.command_timeout),
        }
    }

    /// The outcome of a release of so many locks with these failures. Enough of the granted locks must not be lost. If
    /// so, the lock is given back where so many of all its servers are free that another owner can take it.
    pub(crate) fn verdict(&self, granted: usize, mut failures: Vec<Error>) -> Result<()> {
        let lost = failures.iter().filter(|error| error.is_lost()).count();
        let mut total = granted;
        if granted - lost >= self.needed() {
            total = self.members.len();
            // Where the key was deleted or has another owner, nothing of this lock is in the way.
            failures.retain(|error| !matches!(error.kind(), ErrorKind::Lost(Loss::Gone | Loss::Taken)));
        }
        Error::unless_enough(&self.name, (total, self.needed()), failures)
    }

    /// Takes the members; `None` when other owners kept too many until the deadline. The grants are in the order of
    /// the members, with nothing for a member that was not granted.
    pub(crate) fn acquire(&self, modifiers: &Modifiers, wait: Wait) -> Result<Option<Vec<Option<Grant>>>> {
        // One operation for each client: to begin one is a system call.
        let mut operations: Vec<Operation<'_>> = vec![];
        let mut operation_of = Vec::with_capacity(self.members.len());
        for SingleLock { handle, .. } in &self.members {
            let begun = operations.iter().position(|operation| handle.has_begun(operation));
            operation_of.push(begun.unwrap_or(operations.len()));
            if begun.is_none() {
                operations.push(handle.begin()?);
            }
        }
        let lives: Vec<Arc<Life>> = operations.iter().map(|operation| Arc::clone(&operation.life)).collect();
        let thread = (!modifiers.owned).then(ThreadId::current);
        let merged: Vec<Modifiers> = self.modifiers.iter().map(|own| modifiers.over(own)).collect();
        let request = |&place: &usize| {
            let SingleLock { kind, name, .. } = &self.members[place];
            let request = operations[operation_of[place]].request(name, kind, &merged[place], Some(&self.name));
            request.map_err(|error| error.about(name))
        };
        let requests = self.order.iter().map(request).collect::<Result<Vec<_>>>()?;
        let mut new = requests.iter().filter(|request| request.held_by(thread.as_ref()).is_none());
        let is_new = new.nth(requests.len() - self.needed()).is_some();
        let waits = wait != Wait::Not && is_new;
        let caller = Caller::of_several(&lives, modifiers.cancel.as_ref(), waits);
        caller.check()?;
        let observed = &operations[0];
        let began = Instant::now();
        let patience = requests.iter().map(|request| request.engine.config.command_timeout).max().unwrap_or_default();
        let end = match wait.deadline() {
            Deadline::At(at) => Some(at.max(began).after(patience)),
            Deadline::Never => None,
        };
        let grants = requests.iter().map(|_| None).collect();
        let outcome = self.form.take(Take { requests: &requests, caller: &caller, thread, wait, began, end, grants });
        if is_new {
            let in_events = || (self.name.to_string(), self.kind, None, String::new());
            let event = || TakeEnded::of(in_events(), began.until(Instant::now()), &outcome);
            observed.config.observe(Observer::take_ended, event);
        }
        let Ok(Some(grants)) = outcome else {
            requests.iter().for_each(|one| _ = one.engine.cells.stand_backs.with(one.name, Turn::gave_up));
            return outcome.map(|_| None);
        };
        let mut in_order: Vec<_> = self.order.iter().zip(grants).collect();
        in_order.sort_by_key(|(place, _)| **place);
        Ok(Some(in_order.into_iter().map(|(_, grant)| grant).collect()))
    }
}

/// `multi(a, b)` or `group(a[1], a[2])`; of many members only the first are named.
pub(crate) fn list(form: &str, members: &[SingleLock]) -> String {
    let named: Vec<&str> = members.iter().take(MOST_NAMED).map(|member| member.name.as_str()).collect();
    let more = members.len() - named.len();
    let rest = if more == 0 { String::new() } else { format!(", and {more} more") };
    format!("{form}({}{rest})", named.join(", "))
}

/// Puts together what can share a request: the parts of one bundle, up to a limit.
fn in_shares<T>(parts: impl IntoIterator<Item = (Option<Bundle>, T)>) -> Vec<Vec<T>> {
    let mut shares: Vec<(Option<Bundle>, Vec<T>)> = vec![];
    for (bundle, part) in parts {
        let has_room = |(other, share): &&mut (Option<Bundle>, Vec<T>)| {
            bundle.is_some() && *other == bundle && share.len() < MOST_PARTS
        };
        match shares.iter_mut().find(has_room) {
            Some((_, share)) => share.push(part),
            None => shares.push((bundle, vec![part])),
        }
    }
    shares.into_iter().map(|(_, share)| share).collect()
}

/// The longest delay of a call that is over by its giving back; the background goes on.
pub(crate) const LONGEST_FAREWELL: Duration = Duration::from_millis(50);
/// The most locks of a group.
pub(crate) const MOST_MEMBERS: usize = 1_000;
const MOST_NAMED: usize = 8;
