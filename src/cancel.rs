//! Ends a wait from another thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use once_cell::race::OnceBox;

use crate::bell::{Bell, Bells};
use crate::owner::Home;

/// Ends waits from another thread, as an interrupt of a thread does in Java.
///
/// [`Lock::with_cancel`](crate::Lock::with_cancel) attaches a `Cancel` to a handle. A cancelled wait fails with
/// [`ErrorKind::Cancelled`](crate::ErrorKind::Cancelled) and holds nothing; a lock that was granted at the same
/// moment may still be returned. A cancellation is final. Clones share one state.
/// [`Client::stop_waiting`](crate::Client::stop_waiting) ends the waits of a whole client.
///
/// ```no_run
/// # use lockson::{Cancel, Client, ErrorKind};
/// # let client = Client::connect("redis://localhost")?;
/// let stop = Cancel::new();
/// let lock = client.get_lock("nightly-report").with_cancel(&stop);
/// let waiter = std::thread::spawn(move || lock.lock().map(drop));
/// stop.cancel();
/// // The wait ended, with the lock or by the cancellation.
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

/// The waits of one process that use a `Cancel`.
#[derive(Debug, Default)]
struct Waits {
    home: Home,
    bells: Bells,
    /// The waits of a forked child, whose copy of `bells` may be locked for ever.
    of_child: OnceBox<Waits>,
}

impl Cancel {
    /// Makes a `Cancel` that is not cancelled.
    ///
    /// ```
    /// let stop = lockson::Cancel::new();
    /// assert!(!stop.is_cancelled());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Ends every wait with this `Cancel`, now and later.
    ///
    /// From then on each take through its handles fails with `Cancelled`: also of a free lock, a `try_lock()`, and a
    /// re-entry, whose outer hold stays. Guards are renewed, extended and released as before.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let stop = lockson::Cancel::new();
    /// let lock = client.get_lock("nightly-report").with_cancel(&stop);
    /// stop.cancel(); // from any thread, but not inside a signal handler: it takes a mutex
    /// assert!(lock.lock().is_err());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn cancel(&self) {
        self.0.cancelled.store(true, Ordering::Release);
        self.0.waits.here().ring_all();
    }

    /// Returns whether the waits were cancelled.
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

    pub(crate) fn hang(&self, bell: &Bell) {
        self.0.waits.here().hang(bell);
    }
}

impl Waits {
    /// Returns the bells of this process.
    fn here(&self) -> &Bells {
        let mut waits = self;
        while waits.home.is_elsewhere() {
            waits = waits.of_child.get_or_init(Box::default);
        }
        &waits.bells
    }
}
