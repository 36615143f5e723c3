//! Ends a wait from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::bell::{Bell, Bells, Hung};

/// Ends waits from another thread, like interrupting a thread in Java.
///
/// It is asked for with [`Lock::cancelled_by`](crate::Lock::cancelled_by). A wait that is cancelled
/// fails with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) and holds nothing; a lock that
/// was granted at the same moment may still be handed out. Cancelling is final: a token that was
/// used stays cancelled. Clones are one token.
///
/// ```no_run
/// # use lockson::{Cancel, Client, ErrorKind};
/// # let client = Client::connect("redis://localhost")?;
/// let stop = Cancel::new();
/// let lock = client.lock("nightly-report").cancelled_by(&stop);
/// let waiter = std::thread::spawn(move || lock.lock().map(drop));
/// stop.cancel();
/// // It ended with the lock or was told to stop waiting, but it ended.
/// if let Err(error) = waiter.join().expect("the waiter does not panic") {
///     assert_eq!(error.kind(), ErrorKind::Cancelled);
/// }
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Cancel(Arc<Token>);

#[derive(Debug, Default)]
struct Token {
    cancelled: AtomicBool,
    bells: Bells,
}

impl Cancel {
    /// Makes a token that is not cancelled.
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every wait that uses this token, now and later.
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        self.0.bells.ring_all();
    }

    /// Says whether it was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn hang(&self, bell: &Bell) -> Hung<'_> {
        self.0.bells.hang(bell)
    }
}
