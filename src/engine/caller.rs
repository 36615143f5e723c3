//! A caller that may wait: its bell, and the reasons to end the wait early.

use std::slice;
use std::sync::Arc;

use once_cell::unsync::OnceCell;

use crate::bell::Bell;
use crate::cancel::Cancel;
use crate::engine::life::Life;
use crate::error::{Error, ErrorKind, Result};
use crate::time::Instant;

/// A caller of an operation. `close()`, the [`Cancel`] of the caller and, where the caller waits for other owners,
/// `stop_waiting()` can wake it from every pause.
pub(crate) struct Caller<'a> {
    /// The lives of the clients of its locks; the close of any of these clients wakes the caller.
    lives: &'a [Arc<Life>],
    cancel: Option<&'a Cancel>,
    /// Whether the caller waits for other owners; a holder who re-enters, and a caller who asks once, do not.
    waits: bool,
    /// The bell and its registrations are made at the first pause, because most callers never pause.
    hung: OnceCell<()>,
    bell: OnceCell<Bell>,
}

impl<'a> Caller<'a> {
    pub(crate) fn new(life: &'a Arc<Life>, cancel: Option<&'a Cancel>, waits: bool) -> Self {
        Self::of_several(slice::from_ref(life), cancel, waits)
    }

    /// A caller of locks of several clients.
    pub(crate) fn of_several(lives: &'a [Arc<Life>], cancel: Option<&'a Cancel>, waits: bool) -> Self {
        Self { lives, cancel, waits, bell: OnceCell::new(), hung: OnceCell::new() }
    }

    /// Wakes the caller from its pauses.
    pub(crate) fn bell(&self) -> &Bell {
        self.bell.get_or_init(Bell::new)
    }

    /// Fails if this caller must not go on.
    pub(crate) fn check(&self) -> Result<()> {
        if self.lives.iter().any(|life| life.is_closed()) {
            return Err(closed());
        }
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            return Err(Error::new(ErrorKind::Cancelled, "the wait was cancelled; nothing was taken"));
        }
        if self.waits && self.lives.iter().any(|life| life.is_stopped()) {
            let text = "stop_waiting() ended the waits of the client; nothing was taken";
            return Err(Error::new(ErrorKind::Cancelled, text));
        }
        Ok(())
    }

    /// Sleeps until the bell rings or `until`. Fails when the caller must not go on.
    pub(crate) fn sleep(&self, until: Instant) -> Result<()> {
        self.hung.get_or_init(|| {
            self.lives.iter().for_each(|life| life.hang(self.bell()));
            self.cancel.into_iter().for_each(|cancel| cancel.hang(self.bell()));
        });
        // Checked after the bell was registered, so that no event between check and sleep is missed.
        self.check()?;
        self.bell().wait(until);
        self.check()
    }
}

/// The error of a call on a closed client.
pub(crate) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_cancel_before_the_pause_ends_it_at_once() {
        let life = Arc::new(Life::default());
        let cancel = Cancel::new();
        let caller = Caller::new(&life, Some(&cancel), true);
        cancel.cancel();
        let began = Instant::now();
        let error = caller.sleep(began.after(Duration::from_secs(20))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert!(began.until(Instant::now()) < Duration::from_secs(10), "nobody rings a bell that hangs too late");
    }
}
