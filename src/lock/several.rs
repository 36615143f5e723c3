//! Several locks behind one handle.

use std::sync::Arc;
use std::time::Duration;

use super::one::One;
use super::{Lock, Target};
use crate::engine::several::giving_back::{Held, release_at_once};
use crate::engine::several::{Form, Member, Members};
use crate::engine::{Engine, Modifiers, Wait};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::{Group, Taken};
use crate::script::Side;
use crate::time::Instant;

/// Several locks that are taken together.
pub(super) struct Several {
    ones: Vec<One>,
    /// The same locks for the engine; an error if they cannot be taken together.
    members: Result<Members>,
}

impl Several {
    /// These locks in this form. A group among them counts as its locks.
    pub(super) fn new(locks: impl IntoIterator<Item = Lock>, form: Arc<dyn Form>) -> Self {
        let (mut ones, mut members, mut fault): (Vec<One>, Vec<Member>, Option<Error>) = (vec![], vec![], None);
        for Lock { target, modifiers, .. } in locks {
            let inner = match target {
                Target::One(one) => vec![(one, modifiers)],
                Target::Several(several) => match several.flattened(&*form) {
                    // The modifiers of the inner group replace those of its locks.
                    Ok(inner) => several
                        .ones
                        .iter()
                        .zip(&inner.members)
                        .map(|(one, member)| (one.clone(), modifiers.over(&member.modifiers)))
                        .collect(),
                    Err(error) => {
                        fault = fault.or(Some(error));
                        vec![]
                    }
                },
            };
            for (one, modifiers) in inner {
                match one.name.checked() {
                    Ok(name) => {
                        let (handle, kind) = (one.handle.clone(), one.kind.clone());
                        members.push(Member { handle, kind, name: name.clone(), modifiers });
                        ones.push(one);
                    }
                    Err(error) => fault = fault.or(Some(error)),
                }
            }
        }
        Self { ones, members: fault.map_or(Ok(()), Err).and_then(|()| Members::new(members, form)) }
    }

    /// The members, where this group can be a part of another one.
    fn flattened(&self, form: &dyn Form) -> Result<&Members> {
        let members = self.members()?;
        let alone = [form, &*members.form].into_iter().find(|form| !form.nests());
        alone.map_or(Ok(members), |alone| {
            let noun = alone.noun();
            let text = format!("a {noun} is no part of a group of locks, and has no group among its locks");
            Err(Error::new(ErrorKind::BadInput, text).about(&*members.name))
        })
    }

    pub(super) fn check(&self) -> Result<()> {
        self.members().map(drop)
    }

    fn members(&self) -> Result<&Members> {
        self.members.as_ref().map_err(Error::clone)
    }

    pub(super) fn name(&self) -> &str {
        self.members.as_ref().map_or("multi(?)", |members| &members.name)
    }

    pub(super) fn has_shared(&self) -> bool {
        self.ones.iter().any(|one| one.kind.side() == Side::Shared)
    }

    pub(super) fn take(&self, modifiers: &Modifiers, wait: Wait) -> Result<Option<Taken>> {
        let members = self.members()?;
        let about = |error: Error| error.about(&*members.name);
        let Some(grants) = members.acquire(modifiers, wait).map_err(about)? else { return Ok(None) };
        let handles = members.members.iter().map(|member| member.handle.clone());
        let grants = handles.zip(grants).filter_map(|(handle, grant)| Some((handle, grant?)));
        Ok(Some(Taken::Several(self.group(members), grants.collect())))
    }

    fn group(&self, members: &Members) -> Group {
        let name = Arc::clone(&members.name);
        Group { name, needed: members.needed(), locks: self.ones.len(), limit_each: members.form.limit_each() }
    }

    /// Releases the newest hold of each lock that this thread left to `unlock`.
    pub(super) fn unlock(&self) -> Result<()> {
        let members = self.members()?;
        let operations = self.ones.iter().map(|one| one.handle.begin_to_end()).collect::<Result<Vec<_>>>();
        let operations = operations.map_err(|error| error.about(&*members.name))?;
        let (mut left, mut missing) = (vec![], vec![]);
        for (one, engine) in self.ones.iter().zip(&operations) {
            match one.left_to_unlock(engine) {
                Ok((hold, guard)) => left.push((engine, hold, guard)),
                Err(error) => missing.push(error),
            }
        }
        // Nothing is released unless enough locks can be.
        let group = self.group(members);
        Error::unless_enough(&group.name, (self.ones.len(), group.needed), missing)?;
        let held = left.iter().map(|(engine, hold, guard)| Held { engine, hold, guard: *guard });
        let limit = |engine: &Engine| group.bounds(engine, engine.config.command_timeout);
        let failures = release_at_once(&held.collect::<Vec<_>>(), limit).into_iter().filter_map(Result::err);
        group.verdict(left.len(), failures.collect())
    }

    /// Releases every lock of whatever owner. Returns whether one of them was held.
    pub(super) fn force_unlock(&self) -> Result<bool> {
        let members = self.members()?;
        let outcomes = self.ask_each(members, One::force_unlock_within)?;
        let any = outcomes.iter().any(|outcome| matches!(outcome, Ok(true)));
        let failures = outcomes.into_iter().filter_map(Result::err).collect();
        Error::unless_enough(&members.name, (self.ones.len(), members.needed()), failures).map(|()| any)
    }

    /// Whether a take would find a lock that is held.
    pub(super) fn is_locked(&self) -> Result<bool> {
        let members = self.members()?;
        let outcomes = self.ask_each(members, One::is_locked_within)?;
        let locked = outcomes.iter().filter(|outcome| matches!(outcome, Ok(true))).count();
        let failures: Vec<Error> = outcomes.into_iter().filter_map(Result::err).collect();
        // Of so many locks too few are left for a take.
        let enough = self.ones.len() - members.needed() + 1;
        if locked >= enough {
            return Ok(true);
        }
        Error::unless_enough(&members.name, (self.ones.len(), members.needed()), failures).map(|()| false)
    }

    /// Asks about one lock after another. Servers that do not answer take one command time-out together.
    fn ask_each(
        &self,
        members: &Members,
        ask: fn(&One, Option<Duration>) -> Result<bool>,
    ) -> Result<Vec<Result<bool>>> {
        let mut patience = match self.ones.first() {
            Some(one) => one.handle.begin().map_err(|error| error.about(&*members.name))?.config.command_timeout,
            None => Duration::ZERO,
        };
        let limit_each = members.form.limit_each().unwrap_or(patience);
        let ask_one = |one| {
            let began = Instant::now();
            ask(one, Some(patience.min(limit_each))).inspect_err(|_| {
                patience = patience.saturating_sub(began.until(Instant::now()));
            })
        };
        Ok(self.ones.iter().map(ask_one).collect())
    }

    /// How often this thread holds enough of the locks.
    pub(super) fn hold_count(&self) -> u64 {
        let Ok(members) = self.members() else { return 0 };
        let mut counts: Vec<u64> = self.ones.iter().map(One::hold_count).collect();
        counts.sort_unstable_by(|one, other| other.cmp(one));
        counts.get(members.needed() - 1).copied().unwrap_or(0)
    }

    /// The lock of a group of one.
    pub(super) fn only(&self) -> Option<&One> {
        match &self.ones[..] {
            [one] if self.members.is_ok() => Some(one),
            _ => None,
        }
    }

    /// The error of a question that only a single lock can answer.
    pub(super) fn unsupported<A>(&self, question: &str) -> Result<A> {
        self.check()?;
        let text = format!("{question}() has an answer for each lock only; ask the single locks");
        Err(Error::new(ErrorKind::Unsupported, text).about(self.name()))
    }
}
