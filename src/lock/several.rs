//! Several locks behind one handle.

use super::one::One;
use super::{Lock, Target};
use crate::engine::Wait;
use crate::engine::several::giving_back::{Held, release_at_once};
use crate::engine::several::{Member, Members, Terms};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Taken;
use crate::script::Side;
use crate::state::exchange::Bounds;
use crate::time::Instant;

/// Several locks that are taken together.
pub(super) struct Several {
    ones: Vec<One>,
    /// The same locks for the engine; an error if they cannot be taken together.
    members: Result<Members>,
}

impl Several {
    /// All of these locks. A group among them counts as its locks.
    pub(super) fn all(locks: impl IntoIterator<Item = Lock>) -> Self {
        let (mut ones, mut members, mut fault) = (vec![], vec![], None);
        for Lock { target, lease, max_hold, .. } in locks {
            let inner = match target {
                Target::One(one) => vec![(one, lease, max_hold)],
                Target::Several(several) => match &several.members {
                    // The modifiers of the inner group replace those of its locks.
                    Ok(inner) => several
                        .ones
                        .iter()
                        .zip(&inner.members)
                        .map(|(one, member)| match (lease, max_hold) {
                            (None, None) => (one.clone(), member.lease, member.max_hold),
                            (lease, max_hold) => (one.clone(), lease, max_hold),
                        })
                        .collect(),
                    Err(error) => {
                        fault = fault.or_else(|| Some(error.clone()));
                        vec![]
                    }
                },
            };
            for (one, lease, max_hold) in inner {
                match one.name.checked() {
                    Ok(name) => {
                        let (handle, kind) = (one.handle.clone(), one.kind.clone());
                        members.push(Member { handle, kind, name: name.clone(), lease, max_hold });
                        ones.push(one);
                    }
                    Err(error) => fault = fault.or(Some(error)),
                }
            }
        }
        Self { ones, members: fault.map_or(Ok(()), Err).and_then(|()| Members::new(members)) }
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

    pub(super) fn take(&self, terms: &Terms<'_>, wait: Wait) -> Result<Option<Taken>> {
        let members = self.members()?;
        let about = |error: Error| error.about(&*members.name);
        let Some(grants) = members.acquire(terms, wait).map_err(about)? else { return Ok(None) };
        let handles = members.members.iter().map(|member| member.handle.clone());
        let grants: Vec<_> = handles.zip(grants).collect();
        Ok(Some(Taken::Several { name: members.name.clone(), needed: grants.len(), grants }))
    }

    /// Releases the newest hold of each lock that this thread left to `unlock`.
    pub(super) fn unlock(&self) -> Result<()> {
        let members = self.members()?;
        let operations = self.ones.iter().map(|one| one.handle.begin_to_end()).collect::<Result<Vec<_>>>();
        let operations = operations.map_err(|error| error.about(&*members.name))?;
        // Nothing is released unless every lock can be.
        let left = self.ones.iter().zip(&operations).map(|(one, engine)| one.left_to_unlock(engine));
        let left = left.collect::<Result<Vec<_>>>()?;
        let held = operations.iter().zip(&left).map(|(engine, (hold, guard))| Held { engine, hold, guard: *guard });
        let outcomes = release_at_once(&held.collect::<Vec<_>>(), |engine| {
            let limit = engine.config.command_timeout;
            Bounds::within(Instant::now(), limit, limit)
        });
        let failures = outcomes.into_iter().filter_map(Result::err).collect();
        Error::unless_enough(&members.name, (left.len(), left.len()), failures)
    }

    /// Releases every lock of whatever owner. Returns whether one of them was held.
    pub(super) fn force_unlock(&self) -> Result<bool> {
        let members = self.members()?;
        let (mut any, mut failures) = (false, vec![]);
        for one in &self.ones {
            match one.force_unlock() {
                Ok(was_held) => any |= was_held,
                Err(error) => failures.push(error),
            }
        }
        Error::unless_enough(&members.name, (self.ones.len(), self.ones.len()), failures).map(|()| any)
    }

    /// Whether a take would find a lock that is held.
    pub(super) fn is_locked(&self) -> Result<bool> {
        self.check()?;
        for one in &self.ones {
            if one.is_locked()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The least hold count of this thread.
    pub(super) fn hold_count(&self) -> u64 {
        self.ones.iter().map(One::hold_count).min().unwrap_or(0)
    }

    /// The error of a question that only a single lock can answer.
    pub(super) fn unsupported<A>(&self, question: &str) -> Result<A> {
        self.check()?;
        let text = format!("{question}() has an answer for each lock only; ask the single locks");
        Err(Error::new(ErrorKind::Unsupported, text).about(self.name()))
    }
}
