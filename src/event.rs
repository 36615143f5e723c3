//! The observer: a trait whose methods do nothing by default, with a struct for each event.

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use crate::error::{Error, Loss, Result};
use crate::listing::{InEvents, LockKind, record};

/// Declares the observer, and forwards every event through pointers to an observer.
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

        /// A shared observer, which other code may query, or one that is chosen at run time.
        impl<T: Observer + ?Sized> Observer for Arc<T> {
            $(fn $told(&self, event: &$event) {
                (**self).$told(event);
            })*
        }

        /// Two observers, the first of which hears first; tuples in tuples make more. A panic of the first one keeps
        /// the event from the second.
        impl<A: Observer, B: Observer> Observer for (A, B) {
            $(fn $told(&self, event: &$event) {
                self.0.$told(event);
                self.1.$told(event);
            })*
        }
    };
}

observer! {
    /// Gets the events of a client.
    ///
    /// A method runs on the thread of its event, also on threads of the client, so it must return soon; a slow method
    /// delays renewals. The client knows a grant before it tells of it, and no mutex is held during the call, so a
    /// method may take locks and close the client, with two exceptions. While several locks are released or extended
    /// together, a loss that Redis answers is told before the calls of the other locks are over, and a method that uses
    /// a lock of the same group then waits for them as for a mute server. And [`waiting`](Self::waiting) and
    /// [`still_waiting`](Self::still_waiting) are told in front of the other threads of the process that wait for the
    /// lock: a method that waits there for the same lock, or for one whose holder wants it, waits for itself.
    ///
    /// A panic ends only the method itself. A child that a method forks must call `exec` or `exit` at once. Each method
    /// does nothing by default.
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
        /// A thread goes to sleep because another owner holds the lock; called once for each wait. `acquired` or
        /// `gave_up` follows. [`Client::waiting`](crate::Client::waiting) counts the threads that wait.
        fn waiting(&self, event: &WaitStarted);

        /// A thread has waited for longer than a crashed holder can keep the lock, so another owner lives and stays,
        /// others come first, or the wait can never end: nobody set the permits, or fewer than are wanted. Called once
        /// for each wait; waits for a latch or for a change of leader are not told.
        fn still_waiting(&self, event: &WaitLasts);

        /// A wait ended without the lock: its time was up, or the call failed.
        fn gave_up(&self, event: &WaitGivenUp);

        /// A lock was taken, not re-entered.
        fn acquired(&self, event: &LockAcquired);

        /// The call of a caller has ended that takes a lock or permits: with them, without, or with an error. Called
        /// once for each call that asked Redis, also for one that does not wait, and after `acquired` or `gave_up`. A
        /// multi-lock, a group lock and a red lock tell one end; their locks, whose other events have a `group()`, tell
        /// none. Not called for a re-entry.
        fn take_ended(&self, event: &TakeEnded);

        /// A lock was released.
        fn released(&self, event: &LockReleased);

        /// A held lock was lost; called once for each hold.
        ///
        /// Called when Redis reports the loss, and at the deadline; a process that stood still past the deadline is told
        /// when it looks first, at most 1 s after it wakes.
        fn lost(&self, event: &LockLost);

        /// A hold has ended for this process, in whatever way: released, left to expire, lost, or given back without an
        /// answer. Called once for each hold of which `acquired` told, and after `released` or `lost`; not for the
        /// permits of a semaphore, which belong to nobody.
        fn hold_ended(&self, event: &HoldEnded);

        /// A guard that was dropped, or that ran work, could not release its lock, also because the lock had been lost.
        /// The rest is cleaned up in the background, at the latest by the end of the lease.
        fn release_failed(&self, event: &ReleaseFailed);

        /// The watchdog renewed locks of a server; called once for each round.
        fn renewed(&self, event: &LocksRenewed);

        /// A renewal got no usable reply; it is tried again until the deadline of the hold.
        fn renewal_failed(&self, event: &RenewalFailed);

        /// Renewals of the locks of a server work again after [`renewal_failed`](Self::renewal_failed). Told by the
        /// next renewal, so a client that holds nothing meanwhile learns of the end of an outage with its next hold; on a
        /// cluster also when other servers have all of its locks.
        fn recovered(&self, event: &ServerRecovered);

        /// A thread ended with a guard that was never dropped; its lock is not renewed any more.
        fn abandoned(&self, event: &LockAbandoned);

        /// The server does not report changes of the keys of held locks, so a loss without a message is found at the
        /// next renewal. Called once, and again after reports were possible meanwhile.
        fn losses_told_late(&self, event: &ServerTrouble);

        /// The server cannot wait for replicas, so locks with
        /// [`Durability::with_best_effort`](crate::Durability::with_best_effort) count at once. Called once for each
        /// server.
        fn durability_missing(&self, event: &ServerTrouble);

        /// The listening connection to a server broke or could not be opened. Until it is open again, waiters ask
        /// every second. Called at each attempt in vain.
        fn listening_failed(&self, event: &ServerTrouble);

        /// The listening connection to a server hears messages again after [`listening_failed`](Self::listening_failed),
        /// or a cluster has left the server. A client without waiters and watched holds does not listen, and learns of the
        /// end of an outage with its next one.
        fn listening_recovered(&self, event: &ServerRecovered);
    }
}

record! {
    /// A thread went to sleep because another owner holds the lock.
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
    pub struct WaitStarted of a lock {}

    /// A thread waits for longer than the watchdog's time to live.
    ///
    /// ```
    /// # use lockson::{WaitLasts, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn still_waiting(&self, event: &WaitLasts) {
    ///     println!("{} waits for {} ({}) for {:?}", event.owner(), event.name(), event.kind(), event.waited());
    /// }
    /// # }
    /// ```
    pub struct WaitLasts of a lock {
        /// The duration of the call so far.
        waited: Duration => [Duration],
    }

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
    pub struct WaitGivenUp of a lock {
        /// The duration of the call.
        waited: Duration => [Duration],
        /// The error of the call, `Cancelled` and `Closed` included; `None` when its time was up.
        error: Option<Error> => [Option<&Error>],
    }

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
    pub struct LockAcquired of a lock {
        /// The duration of the call, the wait included; of one of several locks, of the attempt that took it.
        waited: Duration => [Duration],
        /// Whether the thread slept until the grant: [`Observer::waiting`] was called before. `false` for the locks of a
        /// red lock, which waits as a whole.
        has_waited: bool => [bool],
    }

    /// A call that takes a lock or permits has ended.
    ///
    /// ```
    /// # use lockson::{TakeEnded, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn take_ended(&self, event: &TakeEnded) {
    ///     let (name, kind, outcome) = (event.name(), event.kind(), event.outcome());
    ///     println!("{} {name} ({kind}): {outcome} after {:?}", event.owner(), event.waited());
    /// }
    /// # }
    /// ```
    pub struct TakeEnded {
        /// The name of the lock; of several locks that of the group, like `multi(a, b)`.
        name: String => [&str],
        /// The kind of the lock, or of the group.
        kind: LockKind => [LockKind],
        /// The owner id of the hold, or of the hold that was wanted; empty for several locks, each of which has its own.
        owner: String => [&str],
        /// The duration of the call, the wait included.
        waited: Duration => [Duration],
        /// Whether the caller has the lock.
        is_acquired: bool => [bool],
        /// The error of the call, `Cancelled` and `Closed` included; `None` with the lock, and where it was busy.
        error: Option<Error> => [Option<&Error>],
    }
}

impl TakeEnded {
    /// The end of a call with this outcome.
    pub(crate) fn of<T>((name, kind, _, owner): InEvents, waited: Duration, outcome: &Result<Option<T>>) -> Self {
        let (is_acquired, error) = (matches!(outcome, Ok(Some(_))), outcome.as_ref().err().cloned());
        Self { name, kind, owner, waited, is_acquired, error }
    }

    /// The outcome in `snake_case`, for labels of metrics: `acquired`, `busy`, or the kind of the error.
    pub fn outcome(&self) -> &'static str {
        match &self.error {
            Some(error) => error.kind().as_str(),
            None if self.is_acquired => "acquired",
            None => "busy",
        }
    }
}

record! {
    /// A lock was released.
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
    pub struct LockReleased of a lock {
        /// The time for which the lock was held.
        held: Duration => [Duration],
    }

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
    pub struct LockLost of a lock {
        /// The kind of loss.
        loss: Loss => [Loss],
        /// The approximate time for which this process was stopped when the hold expired, if it was: stopped,
        /// suspended with its machine, or not scheduled.
        stood_still: Option<Duration> => [Option<Duration>],
    }

    /// A hold has ended.
    ///
    /// ```
    /// # use lockson::{HoldEnded, Observer};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn hold_ended(&self, event: &HoldEnded) {
    ///     println!("{} had {} for {:?}: {}", event.owner(), event.name(), event.held(), event.outcome());
    /// }
    /// # }
    /// ```
    pub struct HoldEnded of a lock {
        /// The time for which the lock was held.
        held: Duration => [Duration],
        /// The loss, if the hold was lost.
        loss: Option<Loss> => [Option<Loss>],
        /// The error of the release, if it got no answer: the lock is cleaned up in the background.
        error: Option<Error> => [Option<&Error>],
        /// Whether the lock was left to expire.
        is_kept: bool => [bool],
    }
}

impl HoldEnded {
    /// The way in which the hold ended, in `snake_case`, for labels of metrics: `released`, `kept`, the kind of the
    /// error of the release, or the loss.
    pub fn outcome(&self) -> &'static str {
        match (&self.loss, &self.error) {
            (Some(loss), _) => loss.as_str(),
            (None, Some(error)) => error.kind().as_str(),
            (None, None) if self.is_kept => "kept",
            (None, None) => "released",
        }
    }
}

record! {
    /// A guard could not release its lock.
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
    pub struct ReleaseFailed {
        /// The name of the lock.
        name: String => [&str],
        /// The kind of the lock.
        kind: LockKind => [LockKind],
        /// The name of the group, if the lock was taken as a part of several locks. A lost minority of a red lock is no
        /// loss of the group.
        group: Option<String> => [Option<&str>],
        /// The reason.
        error: Error => [&Error],
    }

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
    pub struct LocksRenewed {
        /// The server, without credentials.
        server: String => [&str],
        /// The number of renewed locks.
        locks: usize => [usize],
    }

    /// A renewal got no usable reply.
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
    pub struct RenewalFailed {
        /// The server, without credentials.
        server: String => [&str],
        /// The number of locks in the renewal.
        locks: usize => [usize],
        /// The time until the first of these locks expires if no later renewal succeeds.
        remaining: Duration => [Duration],
        /// The reason.
        error: Error => [&Error],
    }

    /// Something failed at a server; the method of the [`Observer`] tells what.
    ///
    /// ```
    /// # use lockson::{Observer, ServerTrouble};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn listening_failed(&self, event: &ServerTrouble) {
    ///     eprintln!("{} is not heard: {}", event.server(), event.error());
    /// }
    /// # }
    /// ```
    pub struct ServerTrouble {
        /// The server, without credentials.
        server: String => [&str],
        /// The reason.
        error: Error => [&Error],
    }

    /// What failed at a server works again; the method of the [`Observer`] tells what.
    ///
    /// ```
    /// # use lockson::{Observer, ServerRecovered};
    /// # #[derive(Debug)]
    /// # struct Log;
    /// # impl Observer for Log {
    /// fn recovered(&self, event: &ServerRecovered) {
    ///     println!("{} renews again after {:?}", event.server(), event.outage());
    /// }
    /// # }
    /// ```
    pub struct ServerRecovered {
        /// The server, without credentials.
        server: String => [&str],
        /// The duration of the failure, from the first failed request to the first reply, or from the first failure of
        /// the listening connection to the first subscription. On a cluster also until the server was left.
        outage: Duration => [Duration],
    }

    /// A thread ended without releasing its lock.
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
    pub struct LockAbandoned of a lock {}
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
        let shared: Arc<dyn Observer> = Arc::new(Arc::clone(&counter));
        let event = WaitStarted { name: "four".into(), kind: LockKind::Plain, group: None, owner: "me".into() };
        shared.waiting(&event);
        assert_eq!(counter.0.load(Ordering::Relaxed), 4);
        (Arc::clone(&shared), (Arc::clone(&counter), shared)).waiting(&event);
        assert_eq!(counter.0.load(Ordering::Relaxed), 16, "three observers in tuples");
    }
}
