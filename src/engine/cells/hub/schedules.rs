//! What scenes of the checker do with a hub: the tests play the listening thread.
#![cfg(all(test, shuttle))]

use super::*;

impl Hub {
    /// Another waiter has joined meanwhile.
    pub(crate) fn is_listened_to(&self, waker: Waker) {
        self.state.lock().waker = Some(waker);
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.state.lock().channels.len() == 0
    }
}
