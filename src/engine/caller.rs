//! One caller that may have to wait: its bell, and what ends its wait early.

use once_cell::unsync::OnceCell;

use crate::bell::{Bell, Hung};
use crate::cancel::Cancel;
use crate::engine::Engine;
use crate::error::{Error, ErrorKind, Result};
use crate::time::Instant;

/// A caller of an operation, which `close()` and its [`Cancel`] can wake from every pause.
pub(crate) struct Caller<'a> {
    engine: &'a Engine,
    cancel: Option<&'a Cancel>,
    pub(super) bell: Bell,
    /// Where the bell hangs: from the first pause on, since most callers never pause.
    hung: OnceCell<[Option<Hung>; 2]>,
}

impl<'a> Caller<'a> {
    pub(super) fn new(engine: &'a Engine, cancel: Option<&'a Cancel>) -> Self {
        Self { engine, cancel, bell: Bell::new(), hung: OnceCell::new() }
    }

    /// Why this caller must not go on.
    pub(super) fn check(&self) -> Result<()> {
        if self.engine.is_closed() {
            return Err(closed());
        }
        if self.cancel.is_some_and(Cancel::is_cancelled) {
            return Err(Error::new(ErrorKind::Cancelled, "the wait was cancelled; the lock is not held"));
        }
        Ok(())
    }

    /// Sleeps until the bell is rung or `until` has come; fails when the caller must not go on.
    pub(super) fn sleep(&self, until: Instant) -> Result<()> {
        let cancel = || self.cancel.map(|cancel| cancel.hang(&self.bell));
        self.hung.get_or_init(|| [Some(self.engine.closing.hang(&self.bell)), cancel()]);
        // After hanging the bell, so that nothing falls between the look and the sleep.
        self.check()?;
        self.bell.wait(until);
        self.check()
    }
}

/// What a caller of a closed client gets.
pub(super) fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the client was closed")
}

impl Drop for Caller<'_> {
    fn drop(&mut self) {
        // The child's copies of the mutexes may be locked for ever.
        if let Some(hung) = self.hung.take()
            && self.engine.was_forked_within()
        {
            std::mem::forget(hung);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::ClientBuilder;
    use crate::conn::{Address, Dialer, Server, Standalone};
    use crate::owner::Owners;

    #[test]
    fn a_cancel_before_the_pause_ends_it_at_once() {
        let url = "redis://127.0.0.1:1";
        let server = Server::new(Dialer::new(Address::parse(url).unwrap(), "test".into()), 1);
        let engine =
            Engine::new(ClientBuilder::new(url).config, Owners::new(), Box::new(Standalone::new(server))).unwrap();
        let cancel = Cancel::new();
        let caller = Caller::new(&engine, Some(&cancel));
        cancel.cancel();
        let began = Instant::now();
        let error = caller.sleep(began.after(Duration::from_secs(20))).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Cancelled);
        assert!(began.until(Instant::now()) < Duration::from_secs(10), "nobody rings a bell that hangs too late");
    }
}
