//! The requests of one hold: one at a time, and what the ones before left in doubt.
//!
//! Absolute hold counts rest on that: of two requests under way at once the older one could be
//! carried out last.

use crate::state::exchange::Loose;
use crate::state::ledger::CutNumber;
use crate::sync::{Condvar, Mutex};
use crate::time::Instant;

/// Whose turn it is to send a request about one hold.
#[derive(Debug)]
pub(crate) struct Requests {
    state: Mutex<State>,
    ended: Condvar,
}

#[derive(Debug, Default)]
struct State {
    under_way: bool,
    /// Requests that were neither answered nor fenced: they may still come.
    loose: Loose,
    /// The newest partial release of which a request was sent.
    last_cut: CutNumber,
    /// A partial release failed, and the background is to write it.
    unwritten: bool,
}

/// The right to send a request about the hold, given up when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a>(&'a Requests);

impl Requests {
    pub(crate) fn new(loose: Loose) -> Self {
        Self { state: Mutex::new(State { loose, ..State::default() }), ended: Condvar::new() }
    }

    /// Waits for the turn, at most until `until`.
    pub(crate) fn turn(&self, until: Instant) -> Option<Turn<'_>> {
        let mut state = self.state.lock();
        while state.under_way {
            let now = Instant::now();
            if now >= until {
                return None;
            }
            self.ended.wait_for(&mut state, now.nap_until(until));
        }
        state.under_way = true;
        Some(Turn(self))
    }

    /// Takes over what is in doubt of a hold that sends nothing more.
    pub(crate) fn take_loose(&self) -> Loose {
        std::mem::take(&mut self.state.lock().loose)
    }

    /// A partial release failed. Answers whether the background has to be told: it was not before.
    pub(crate) fn leave_unwritten(&self) -> bool {
        !std::mem::replace(&mut self.state.lock().unwritten, true)
    }
}

impl Turn<'_> {
    pub(crate) fn take_loose(&self) -> Loose {
        self.0.take_loose()
    }

    pub(crate) fn keep_loose(&self, loose: Loose) {
        self.0.state.lock().loose.add(loose);
    }

    /// A request of this partial release is about to be sent.
    pub(crate) fn cuts(&self, cut: CutNumber) {
        let mut state = self.0.state.lock();
        state.last_cut = state.last_cut.max(cut);
    }

    pub(crate) fn last_cut(&self) -> CutNumber {
        self.0.state.lock().last_cut
    }

    /// Redis has what the hold is worth now: nothing is left for the background.
    pub(crate) fn written(&self) {
        self.0.state.lock().unwritten = false;
    }

    /// Whether the background still has something to write.
    pub(crate) fn has_unwritten(&self) -> bool {
        self.0.state.lock().unwritten
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.0.state.lock().under_way = false;
        self.0.ended.notify_one();
    }
}
