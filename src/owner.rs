//! The identity of a client, of its threads, and of each hold.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use uuid::Uuid;

use crate::system::new_uuid;

/// The process in which a client was opened. A forked child has a copy of the client, which must not be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home(u32);

impl Home {
    pub(crate) fn here() -> Self {
        Self(std::process::id())
    }

    pub(crate) fn is_elsewhere(self) -> bool {
        std::process::id() != self.0
    }
}

/// The owner of one hold, as stored in Redis: `<client uuid>:<thread>.<hold>`.
///
/// An owner belongs to a hold, not to a thread: every outermost acquire draws a new owner, so a late copy of an older
/// request cannot change a newer hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct OwnerId(Arc<str>);

impl OwnerId {
    /// An owner in the encoding of its kind.
    pub(crate) fn encoded(text: &str) -> Self {
        Self(text.into())
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The identity of one client and the counter of its holds.
#[derive(Debug)]
pub(crate) struct Owners {
    client: String,
    next_hold: AtomicU64,
}

impl Owners {
    pub(crate) fn new() -> Self {
        Self { client: new_uuid().to_string(), next_hold: AtomicU64::new(1) }
    }

    pub(crate) fn client(&self) -> &str {
        &self.client
    }

    /// The name of the client's connections: this one, the id, the host and the process.
    pub(crate) fn connection_name(&self, client_name: &str) -> String {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        // A name of a connection has no spaces, and its parts are told apart by colons.
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        let host: String = host.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).take(64).collect();
        format!("{client_name}:{}:{host}:{}", self.client, std::process::id())
    }

    /// Draws an owner that was never used before.
    pub(crate) fn draw(&self, thread: ThreadNumber) -> (HoldNumber, OwnerId) {
        let hold = self.next_hold.fetch_add(1, Ordering::Relaxed);
        let (mut of_thread, mut of_hold) = (itoa::Buffer::new(), itoa::Buffer::new());
        let (mut owner, mut length) = ([0; LONGEST_OWNER], 0);
        for part in [&self.client, ":", of_thread.format(thread.0), ".", of_hold.format(hold)] {
            let start = length;
            length += part.len();
            owner[start..length].copy_from_slice(part.as_bytes());
        }
        // Texts side by side are a text.
        (HoldNumber(hold), OwnerId::encoded(std::str::from_utf8(&owner[..length]).unwrap_or_default()))
    }
}

/// A uuid, two numbers, and what separates them.
const LONGEST_OWNER: usize = 36 + 1 + 20 + 1 + 20;

/// Whether this is the id of a client in the form that this library and Redisson write.
pub(crate) fn is_client_id(text: &str) -> bool {
    text.len() == 36 && Uuid::try_parse(text).is_ok()
}

/// Numbers the holds of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct HoldNumber(pub(crate) u64);

/// A thread number that is never reused, unlike the number of the system.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct ThreadNumber(pub(crate) u64);

/// A thread, as its holds refer to the thread: a number, and whether the thread still runs.
#[derive(Clone, Debug)]
pub(crate) struct ThreadId {
    number: ThreadNumber,
    ended: Arc<AtomicBool>,
}

impl ThreadId {
    /// Returns the calling thread. A destructor that runs after the thread-local data is gone belongs to the same
    /// thread, which has ended: nothing can tell when the destructor is over.
    pub(crate) fn current() -> Self {
        CURRENT.try_with(|current| current.get_or_init(|| RunningThread(Self::numbered())).0.clone()).unwrap_or_else(
            |_| {
                let thread = Self::numbered();
                thread.ended.store(true, Ordering::Release);
                thread
            },
        )
    }

    /// A new identity with the number of the calling thread.
    fn numbered() -> Self {
        let fresh = || ThreadNumber(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
        let number = NUMBER.get().unwrap_or_else(fresh);
        NUMBER.set(Some(number));
        Self { number, ended: Arc::default() }
    }

    pub(crate) fn number(&self) -> ThreadNumber {
        self.number
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// A simulated thread: the scheduler runs all of them in one thread of the system.
    #[cfg(all(test, shuttle))]
    pub(crate) fn for_test() -> Self {
        NUMBER.set(None);
        Self::numbered()
    }
}

/// A thread-local value that records the end of the thread.
struct RunningThread(ThreadId);

impl Drop for RunningThread {
    fn drop(&mut self) {
        self.0.ended.store(true, Ordering::Release);
    }
}

static NEXT_THREAD: AtomicU64 = AtomicU64::new(1);

thread_local! {
    static CURRENT: OnceCell<RunningThread> = const { OnceCell::new() };
    /// The number outlives `CURRENT`, because it needs no destructor.
    static NUMBER: Cell<Option<ThreadNumber>> = const { Cell::new(None) };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_is_client_thread_and_hold() {
        let owners = Owners::new();
        let thread = ThreadId::current();
        let (hold, owner) = owners.draw(thread.number());
        assert_eq!(owner.as_str(), format!("{}:{}.{}", owners.client(), thread.number().0, hold.0));
        assert_ne!(owners.draw(thread.number()).1, owner);
    }

    #[test]
    fn a_thread_keeps_its_number_and_tells_its_end() {
        let other = std::thread::spawn(|| {
            assert_eq!(ThreadId::current().number(), ThreadId::current().number());
            ThreadId::current()
        });
        let other = other.join().unwrap();
        assert!(other.has_ended());
        assert!(!ThreadId::current().has_ended());
        assert_ne!(other.number(), ThreadId::current().number());
    }
}
