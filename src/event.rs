//! What can be observed: a trait whose methods do nothing by default, one struct per event.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Loss};
use crate::listing::LockKind;

/// Declares the observer, and has pointers to one hand every event on.
macro_rules! observer {
    (
        $(#[$doc:meta])*
        pub trait Observer: Debug + Send + Sync {
            $($(#[$event_doc:meta])* fn $told:ident(&self, event: &$event:ident);)*
        }
    ) => {
        $(#[$doc])*
        pub trait Observer: Debug + Send + Sync {
            $($(#[$event_doc])*
            fn $told(&self, event: &$event) {
                let _ = event;
            })*
        }

        /// An observer that others keep, too, to ask it what it saw.
        impl<T: Observer + ?Sized> Observer for Arc<T> {
            $(fn $told(&self, event: &$event) {
                (**self).$told(event);
            })*
        }

        /// An observer that is chosen while the program runs.
        impl<T: Observer + ?Sized> Observer for Box<T> {
            $(fn $told(&self, event: &$event) {
                (**self).$told(event);
            })*
        }
    };
}

observer! {
    /// Sees what a client does.
    ///
    /// Methods run on the thread where the fact happened, also on the client's own threads, so they
    /// must return soon; a slow one delays renewals. Nothing is locked meanwhile. A method that panics
    /// stops nothing but itself. Each method does nothing by default.
    ///
    /// ```
    /// use lockson::{LockLost, Observer};
    ///
    /// #[derive(Debug)]
    /// struct Alarm;
    ///
    /// impl Observer for Alarm {
    ///     fn lost(&self, event: &LockLost) {
    ///         eprintln!("lock {:?} was lost: {}", event.name(), event.loss());
    ///     }
    /// }
    /// ```
    pub trait Observer: Debug + Send + Sync {
        /// A thread goes to sleep because somebody else has the lock; told once for each call. `acquired` or
        /// `gave_up` follows.
        fn waiting(&self, event: &WaitStarted);

        /// A wait ended without the lock: its time was up, or the call failed.
        fn gave_up(&self, event: &WaitGivenUp);

        /// A lock was taken, not re-entered.
        fn acquired(&self, event: &LockAcquired);

        /// A lock was given back.
        fn released(&self, event: &LockReleased);

        /// A lock was lost while it was held; told once for each hold.
        ///
        /// Told when Redis says so, at the deadline where somebody waits for it or a renewal failed, and
        /// otherwise as soon as anybody asks the hold or gives it back.
        fn lost(&self, event: &LockLost);

        /// A dropped guard could not give its lock back, also because it had been lost before. What may
        /// still stand in Redis is cleared in the background, at the latest by its lease.
        fn release_failed(&self, event: &ReleaseFailed);

        /// The watchdog renewed locks of a server; told once for each round.
        fn renewed(&self, event: &LocksRenewed);

        /// A renewal got no usable answer; it is tried again until the hold's own deadline.
        fn renewal_failed(&self, event: &RenewalFailed);

        /// Renewals of a server's locks work again after [`renewal_failed`](Self::renewal_failed).
        fn recovered(&self, event: &RenewalRecovered);

        /// A thread ended with a guard that was never dropped; its lock is not renewed any more.
        fn abandoned(&self, event: &LockAbandoned);

        /// The server does not say what happens to the keys of held locks: a loss that nobody announces is
        /// told at the next renewal. Told once, and again when it was possible meanwhile.
        fn losses_told_late(&self, event: &LossesToldLate);

        /// The listening connection to a server broke or could not be opened; until it is back,
        /// waiters ask every second.
        fn listening_failed(&self, event: &ListeningFailed);
    }
}

/// The observer of a client that has none.
#[derive(Debug)]
pub(crate) struct NoObserver;

impl Observer for NoObserver {}

macro_rules! event {
    ($(#[$doc:meta])* $event:ident { $($(#[$field_doc:meta])* $field:ident: $owned:ty => [$($shown:tt)+],)* }) => {
        $(#[$doc])*
        #[derive(Clone, Debug)]
        pub struct $event {
            $(pub(crate) $field: $owned,)*
        }

        impl $event {
            $($(#[$field_doc])*
            pub fn $field(&self) -> $($shown)+ {
                event!(@show self, $field, $($shown)+)
            })*
        }
    };
    (@show $event:ident, $field:ident, Option<& $shown:ty>) => { $event.$field.as_ref() };
    (@show $event:ident, $field:ident, & $shown:ty) => { &$event.$field };
    (@show $event:ident, $field:ident, $shown:ty) => { $event.$field };
}

event! {
    /// A thread went to sleep because somebody else has the lock.
    ///
    /// ```
    /// # use lockson::{WaitStarted, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn waiting(&self, event: &WaitStarted) {
    ///     println!("{} waits for {} ({})", event.owner(), event.name(), event.kind());
    /// }
    /// # }
    /// ```
    WaitStarted {
        /// The name of the lock.
        name: String => [&str],
        /// The kind of the lock.
        kind: LockKind => [LockKind],
        /// The owner id that the hold would get.
        owner: String => [&str],
    }
}

event! {
    /// A wait ended without the lock.
    ///
    /// ```
    /// # use lockson::{WaitGivenUp, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn gave_up(&self, event: &WaitGivenUp) {
    ///     let (name, kind, owner) = (event.name(), event.kind(), event.owner());
    ///     let why = event.error().map_or_else(|| "time is up".to_owned(), ToString::to_string);
    ///     println!("{owner} gave up {name} ({kind}) after {:?}: {why}", event.waited());
    /// }
    /// # }
    /// ```
    WaitGivenUp {
        /// The name of the lock.
        name: String => [&str],
        /// The kind of the lock.
        kind: LockKind => [LockKind],
        /// The owner id that the hold would have got.
        owner: String => [&str],
        /// How long the call took.
        waited: Duration => [Duration],
        /// Why the call failed, `Cancelled` and `Closed` included; `None` when its time was up.
        error: Option<Error> => [Option<&Error>],
    }
}

event! {
    /// A lock was taken.
    ///
    /// ```
    /// # use lockson::{LockAcquired, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn acquired(&self, event: &LockAcquired) {
    ///     let (name, kind, owner) = (event.name(), event.kind(), event.owner());
    ///     println!("{owner} has {name} ({kind}) after {:?}", event.waited());
    /// }
    /// # }
    /// ```
    LockAcquired {
        /// The name of the lock.
        name: String => [&str],
        /// The kind of the lock.
        kind: LockKind => [LockKind],
        /// The owner id as it stands in Redis.
        owner: String => [&str],
        /// How long the call took, waiting included.
        waited: Duration => [Duration],
    }
}

event! {
    /// A lock was given back.
    ///
    /// ```
    /// # use lockson::{LockReleased, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn released(&self, event: &LockReleased) {
    ///     let (name, kind, owner) = (event.name(), event.kind(), event.owner());
    ///     println!("{owner} held {name} ({kind}) for {:?}", event.held());
    /// }
    /// # }
    /// ```
    LockReleased {
        /// The name of the lock.
        name: String => [&str],
        /// The kind of the lock.
        kind: LockKind => [LockKind],
        /// The owner id as it stood in Redis.
        owner: String => [&str],
        /// How long it was held.
        held: Duration => [Duration],
    }
}

event! {
    /// A lock was lost.
    ///
    /// ```
    /// # use lockson::{LockLost, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn lost(&self, event: &LockLost) {
    ///     let (name, kind, owner) = (event.name(), event.kind(), event.owner());
    ///     eprintln!("{owner} lost {name} ({kind}): {}", event.loss());
    ///     if let Some(time) = event.stood_still() {
    ///         eprintln!("  this process stood still for {time:?}");
    ///     }
    /// }
    /// # }
    /// ```
    LockLost {
        /// The name of the lock.
        name: String => [&str],
        /// The kind of the lock.
        kind: LockKind => [LockKind],
        /// The owner id as it stood in Redis.
        owner: String => [&str],
        /// How it was lost.
        loss: Loss => [Loss],
        /// For about how long this process stood still when the hold expired, if it did: stopped, suspended
        /// with its machine, or given no turn.
        stood_still: Option<Duration> => [Option<Duration>],
    }
}

event! {
    /// A guard could not give its lock back.
    ///
    /// ```
    /// # use lockson::{ReleaseFailed, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn release_failed(&self, event: &ReleaseFailed) {
    ///     eprintln!("{} ({}) is not given back yet: {}", event.name(), event.kind(), event.error());
    /// }
    /// # }
    /// ```
    ReleaseFailed {
        /// The name of the lock.
        name: String => [&str],
        /// The kind of the lock.
        kind: LockKind => [LockKind],
        /// Why not.
        error: Error => [&Error],
    }
}

event! {
    /// Locks were renewed.
    ///
    /// ```
    /// # use lockson::{LocksRenewed, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn renewed(&self, event: &LocksRenewed) {
    ///     println!("{} locks renewed at {}", event.locks(), event.server());
    /// }
    /// # }
    /// ```
    LocksRenewed {
        /// The server, without credentials.
        server: String => [&str],
        /// How many locks were renewed.
        locks: usize => [usize],
    }
}

event! {
    /// A renewal got no usable answer.
    ///
    /// ```
    /// # use lockson::{RenewalFailed, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn renewal_failed(&self, event: &RenewalFailed) {
    ///     let (locks, server) = (event.locks(), event.server());
    ///     eprintln!("{locks} locks at {server} not renewed, {:?} left: {}", event.remaining(), event.error());
    /// }
    /// # }
    /// ```
    RenewalFailed {
        /// The server, without credentials.
        server: String => [&str],
        /// How many locks were to be renewed.
        locks: usize => [usize],
        /// How long the first of them is held yet if no later renewal succeeds.
        remaining: Duration => [Duration],
        /// Why not.
        error: Error => [&Error],
    }
}

event! {
    /// Renewals work again.
    ///
    /// ```
    /// # use lockson::{RenewalRecovered, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn recovered(&self, event: &RenewalRecovered) {
    ///     println!("{} renews again after {:?}", event.server(), event.outage());
    /// }
    /// # }
    /// ```
    RenewalRecovered {
        /// The server, without credentials.
        server: String => [&str],
        /// How long renewals failed: from the first request in vain to the answer that ended it.
        outage: Duration => [Duration],
    }
}

event! {
    /// A thread ended without giving its lock back.
    ///
    /// ```
    /// # use lockson::{LockAbandoned, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn abandoned(&self, event: &LockAbandoned) {
    ///     eprintln!("a thread ended with {} ({}) as {}", event.name(), event.kind(), event.owner());
    /// }
    /// # }
    /// ```
    LockAbandoned {
        /// The name of the lock.
        name: String => [&str],
        /// The kind of the lock.
        kind: LockKind => [LockKind],
        /// The owner id as it stands in Redis until its time to live ends.
        owner: String => [&str],
    }
}

event! {
    /// The server does not say what happens to the keys of held locks.
    ///
    /// ```
    /// # use lockson::{LossesToldLate, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn losses_told_late(&self, event: &LossesToldLate) {
    ///     eprintln!("{} tells losses late: {}", event.server(), event.error());
    /// }
    /// # }
    /// ```
    LossesToldLate {
        /// The server, without credentials.
        server: String => [&str],
        /// Why not.
        error: Error => [&Error],
    }
}

event! {
    /// The listening connection failed.
    ///
    /// ```
    /// # use lockson::{ListeningFailed, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn listening_failed(&self, event: &ListeningFailed) {
    ///     eprintln!("{} is not heard: {}", event.server(), event.error());
    /// }
    /// # }
    /// ```
    ListeningFailed {
        /// The server, without credentials.
        server: String => [&str],
        /// Why.
        error: Error => [&Error],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[derive(Debug, Default)]
    struct Counter(AtomicUsize);

    impl Observer for Counter {
        fn waiting(&self, event: &WaitStarted) {
            self.0.fetch_add(event.name().len(), Ordering::Relaxed);
        }
    }

    #[test]
    fn pointers_to_an_observer_hand_events_on() {
        let counter = Arc::new(Counter::default());
        let boxed: Box<dyn Observer> = Box::new(Arc::clone(&counter));
        let shared: Arc<dyn Observer> = Arc::new(boxed);
        let event = WaitStarted { name: "four".into(), kind: LockKind::Plain, owner: "me".into() };
        shared.waiting(&event);
        assert_eq!(counter.0.load(Ordering::Relaxed), 4);
    }
}
