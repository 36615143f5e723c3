//! The holds of one client: who re-enters what, and what is to be renewed.

use std::collections::HashMap;
use std::sync::Arc;

use super::hold::HoldState;
use crate::name::LockName;
use crate::owner::ThreadNumber;
use crate::sync::Mutex;

/// Every hold that has not been given back, by name.
#[derive(Debug, Default)]
pub(crate) struct Registry(Mutex<HashMap<LockName, Vec<Arc<HoldState>>>>);

impl Registry {
    pub(crate) fn add(&self, hold: Arc<HoldState>) {
        let mut by_name = self.0.lock();
        match by_name.get_mut(&hold.name) {
            Some(holds) => {
                // What a thread that has ended lost can be re-entered by nobody.
                holds.retain(|other| !other.is_dead());
                holds.push(hold);
            }
            None => {
                by_name.insert(hold.name.clone(), vec![hold]);
            }
        }
    }

    pub(crate) fn remove(&self, hold: &HoldState) {
        let mut by_name = self.0.lock();
        if let Some(holds) = by_name.get_mut(&hold.name) {
            holds.retain(|other| other.number != hold.number);
            if holds.is_empty() {
                by_name.remove(&hold.name);
            }
        }
    }

    /// The hold that `thread` would re-enter under `name`.
    pub(crate) fn find(&self, name: &LockName, thread: ThreadNumber) -> Option<Arc<HoldState>> {
        let by_name = self.0.lock();
        let of_thread = |hold: &&Arc<HoldState>| hold.thread.as_ref().is_some_and(|id| id.number() == thread);
        by_name.get(name)?.iter().find(of_thread).cloned()
    }

    pub(crate) fn under(&self, name: &LockName) -> Vec<Arc<HoldState>> {
        self.0.lock().get(name).cloned().unwrap_or_default()
    }

    pub(crate) fn all(&self) -> Vec<Arc<HoldState>> {
        self.0.lock().values().flatten().cloned().collect()
    }
}
