//! Ends a wait from another thread.

use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;

use crate::bell::{Bell, Bells, Hung};
use crate::owner::Home;

/// Ends waits from another thread, like interrupting a thread in Java.
///
/// It is asked for with [`Lock::with_cancel`](crate::Lock::with_cancel). A wait that is cancelled
/// fails with [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) and holds nothing; a lock that
/// was granted at the same moment may still be handed out. Cancelling is final: a token that was
/// used stays cancelled. Clones are one token.
///
/// ```no_run
/// # use lockson::{Cancel, Client, ErrorKind};
/// # let client = Client::connect("redis://localhost")?;
/// let stop = Cancel::new();
/// let lock = client.get_lock("nightly-report").with_cancel(&stop);
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
    waits: Waits,
}

/// The waits of one process that use a token.
#[derive(Debug)]
struct Waits {
    home: Home,
    bells: Bells,
    /// Those of a forked child: its copy of `bells` may be locked for ever.
    of_child: OnceBox<Waits>,
}

impl Cancel {
    /// Makes a token that is not cancelled.
    ///
    /// ```
    /// let stop = lockson::Cancel::new();
    /// assert!(!stop.is_cancelled());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every wait that uses this token, now and later.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let stop = lockson::Cancel::new();
    /// let lock = client.get_lock("nightly-report").with_cancel(&stop);
    /// stop.cancel(); // from any thread, a handler of signals for one
    /// assert!(lock.lock().is_err());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        self.0.waits.here().ring_all();
    }

    /// Says whether it was cancelled.
    ///
    /// ```
    /// let stop = lockson::Cancel::new();
    /// stop.clone().cancel();
    /// assert!(stop.is_cancelled());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.0.cancelled.load(Ordering::Acquire)
    }

    pub(crate) fn hang(&self, bell: &Bell) -> Hung {
        self.0.waits.here().hang(bell)
    }
}

/// No code of a caller runs under its mutex.
impl UnwindSafe for Cancel {}
impl RefUnwindSafe for Cancel {}

impl Waits {
    /// The bells of this very process.
    fn here(&self) -> &Bells {
        let mut waits = self;
        while waits.home.is_elsewhere() {
            waits = waits.of_child.get_or_init(Box::default);
        }
        &waits.bells
    }
}

impl Default for Waits {
    fn default() -> Self {
        Self { home: Home::here(), bells: Bells::default(), of_child: OnceBox::new() }
    }
}
