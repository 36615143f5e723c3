//! Several locks behind one handle.

use std::sync::Arc;

use super::{Lock, Locks};
use crate::engine::Grant;
use crate::engine::several::{Form, Members, SingleLock};
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

    /// Returns the newest holds of this thread that were left to `unlock`, with nothing for a lock without one.
    pub(super) fn left_to_unlock(&self) -> Result<Vec<Option<Grant>>> {
        let mut missing = vec![];
        let left = |one: &SingleLock| one.left_to_unlock().map_err(|error| missing.push(error)).ok();
        let left = self.members.iter().map(left).collect();
        // Nothing is released unless enough locks can be.
        Error::unless_enough(&self.name, (self.members.len(), self.needed()), missing).map(|()| left)
    }
}
