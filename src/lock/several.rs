//! Several locks behind one handle.

use std::sync::Arc;

use super::{Lock, Locks};
use crate::engine::Engine;
use crate::engine::several::giving_back::{Held, release_at_once};
use crate::engine::several::{Form, Members};
use crate::error::{Error, ErrorKind, Result};

impl Members {
    /// These locks in this form. A group among them counts as its locks.
    pub(super) fn of(locks: impl IntoIterator<Item = Lock>, form: Arc<dyn Form>) -> Result<Self> {
        let mut members = vec![];
        for Lock { locks, modifiers, .. } in locks {
            match locks {
                Locks::One(one) => members.push((one, modifiers)),
                Locks::Several(inner) => {
                    if let Some(alone) = [&form, &inner.form].into_iter().find(|form| form.limit_each().is_some()) {
                        let noun = alone.noun();
                        let text = format!("a {noun} is no part of a group of locks, and has no group among its locks");
                        return Err(Error::new(ErrorKind::BadInput, text).about(&*inner.name));
                    }
                    // The modifiers of the inner group replace those of its locks.
                    let modifiers = inner.modifiers.iter().map(|own| modifiers.over(own));
                    members.extend(inner.members.iter().cloned().zip(modifiers));
                }
                Locks::Impossible(_, error) => return Err(error),
            }
        }
        Self::new(members, form)
    }

    /// Releases the newest hold of each lock that this thread left to `unlock`.
    pub(super) fn unlock(&self) -> Result<()> {
        let operations = self.members.iter().map(|one| one.handle.begin_to_end()).collect::<Result<Vec<_>>>();
        let operations = operations.map_err(|error| error.about(&*self.name))?;
        let (mut left, mut missing) = (vec![], vec![]);
        for (one, engine) in self.members.iter().zip(&operations) {
            match one.left_to_unlock(engine) {
                Ok((hold, guard)) => left.push((engine, hold, guard)),
                Err(error) => missing.push(error),
            }
        }
        // Nothing is released unless enough locks can be.
        Error::unless_enough(&self.name, (self.members.len(), self.needed()), missing)?;
        let held = left.iter().map(|(engine, hold, guard)| Held { engine, hold, guard: *guard });
        let limit = |engine: &Engine| self.bounds(engine, engine.config.command_timeout);
        let failures = release_at_once(&held.collect::<Vec<_>>(), limit).into_iter().filter_map(Result::err);
        self.verdict(left.len(), failures.collect())
    }
}
