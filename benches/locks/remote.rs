//! The waiting side of a hand-over, in another thread or in another process.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::Duration;

use lockson::Lock;
use lockson_harness::HelperProcess;
use rustix::time::{ClockId, clock_gettime};

use crate::bare::{self, Bare};
use crate::child;
use crate::wire::{self, Wire};

/// Waits for the lock when told to.
pub(crate) trait Waiter {
    /// Takes the lock, remembers the moment of the grant, releases the lock.
    fn wait(&mut self) -> u64;
}

/// A waiter somewhere else.
pub(crate) trait Remote {
    /// Starts the waiting.
    fn go(&mut self);

    /// The moment of the grant. The waiter has released the lock before the return.
    fn granted_at(&mut self) -> u64;
}

pub(crate) struct LocksonWaiter(Lock);

impl LocksonWaiter {
    pub(crate) fn new(url: &str, name: &str) -> Self {
        Self(wire::client(url).get_lock(name))
    }
}

impl Waiter for LocksonWaiter {
    fn wait(&mut self) -> u64 {
        let guard = self.0.lock().expect("the lock becomes free");
        let granted = now();
        guard.unlock().expect("the lock was held");
        granted
    }
}

/// The simplest waiter for a message: one thread listens and wakes the other thread, which asks again.
pub(crate) struct BareWaiter {
    bare: Bare,
    messages: Receiver<()>,
}

impl BareWaiter {
    pub(crate) fn new(url: &str, name: &str) -> Self {
        let (sender, messages) = channel();
        let connection = Wire::open(url);
        let channel = bare::channel(name);
        thread::spawn(move || connection.listen(&channel, || sender.send(()).is_ok()));
        Self { bare: Bare::new(url, name), messages }
    }
}

impl Waiter for BareWaiter {
    fn wait(&mut self) -> u64 {
        // Messages of earlier releases say nothing about this one.
        while self.messages.try_recv().is_ok() {}
        while !self.bare.acquire() {
            self.messages.recv().expect("the listener lives");
        }
        let granted = now();
        self.bare.release();
        granted
    }
}

pub(crate) struct InThread {
    go: Sender<()>,
    granted: Receiver<u64>,
}

impl InThread {
    /// Starts a thread that creates the waiter.
    pub(crate) fn start<W: Waiter>(waiter: impl FnOnce() -> W + Send + 'static) -> Self {
        let (go, told) = channel();
        let (answer, granted) = channel();
        thread::spawn(move || {
            let mut waiter = waiter();
            while told.recv().is_ok() && answer.send(waiter.wait()).is_ok() {}
        });
        Self { go, granted }
    }
}

impl Remote for InThread {
    fn go(&mut self) {
        self.go.send(()).expect("the waiter lives");
    }

    fn granted_at(&mut self) -> u64 {
        self.granted.recv_timeout(PATIENCE).expect("the waiter gets the lock")
    }
}

pub(crate) struct InProcess(HelperProcess);

impl InProcess {
    pub(crate) fn start(kind: &str, url: &str, name: &str) -> Self {
        Self(child::spawn(&[kind, url, name]))
    }
}

impl Remote for InProcess {
    fn go(&mut self) {
        self.0.send("go");
    }

    fn granted_at(&mut self) -> u64 {
        self.0.next_line(PATIENCE).parse().expect("the child tells a time")
    }
}

/// The time in nanoseconds, by a clock that all processes of the machine share.
pub(crate) fn now() -> u64 {
    let reading = clock_gettime(ClockId::Monotonic);
    u64::try_from(reading.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(reading.tv_nsec).unwrap_or(0)
}

const PATIENCE: Duration = Duration::from_secs(20);
