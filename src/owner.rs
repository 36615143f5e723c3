//! The identity of a client, of its threads, and of each hold.

use std::cell::{Cell, OnceCell};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use once_cell::race::OnceBox;
use uuid::Uuid;

use crate::system::new_uuid;

/// The process in which a client was opened. A forked child has a copy of the client, which must not be used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Home(u32);

/// This process.
impl Default for Home {
    fn default() -> Self {
        Self(std::process::id())
    }
}

impl Home {
    pub(crate) fn is_elsewhere(self) -> bool {
        std::process::id() != self.0
    }
}

/// The owner of one hold, as stored in Redis: `<client uuid>:<thread>.<hold>`, or in the encoding of its kind.
///
/// An owner belongs to a hold, not to a thread: every outermost acquire draws a new owner, so a late copy of an older
/// request cannot change a newer hold.
#[derive(Clone, Debug)]
pub(crate) struct OwnerId {
    /// What the text is made of; `None` for an owner that is a text alone.
    drawn: Option<(Owners, ThreadNumber, HoldNumber)>,
    /// The text, where there is no other way to it, or where it was lent.
    text: OnceBox<String>,
}

impl OwnerId {
    /// An owner in the encoding of its kind.
    pub(crate) fn encoded(text: impl Into<String>) -> Self {
        Self { drawn: None, text: OnceBox::with_value(Box::new(text.into())) }
    }

    /// Lends the text, and keeps it from now on. A request and [`Display`](fmt::Display) need no kept text.
    pub(crate) fn as_str(&self) -> &str {
        self.text.get_or_init(|| Box::new(self.to_string()))
    }

    /// Makes the text for a moment.
    pub(crate) fn with_text<R>(&self, then: impl FnOnce(&str) -> R) -> R {
        // Texts side by side are a text.
        self.with_bytes(|bytes| then(std::str::from_utf8(bytes).unwrap_or_default()))
    }

    pub(crate) fn with_bytes<R>(&self, then: impl FnOnce(&[u8]) -> R) -> R {
        let Some((owners, thread, hold)) = self.drawn.as_ref().filter(|_| self.text.get().is_none()) else {
            return then(self.text.get().map_or(&[], String::as_bytes));
        };
        let (mut of_thread, mut of_hold) = (itoa::Buffer::new(), itoa::Buffer::new());
        let parts = [owners.client(), ":", of_thread.format(thread.0), ".", of_hold.format(hold.0)];
        let (mut text, mut end) = ([0; LONGEST_OWNER], 0);
        for part in parts {
            text[end..][..part.len()].copy_from_slice(part.as_bytes());
            end += part.len();
        }
        then(&text[..end])
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with_text(|text| f.write_str(text))
    }
}

/// A uuid, two numbers, and what separates them.
const LONGEST_OWNER: usize = 36 + 1 + 20 + 1 + 20;

/// The identity of one client and the counter of its holds.
#[derive(Clone, Debug)]
pub(crate) struct Owners(Arc<ClientIdentity>);

#[derive(Debug)]
struct ClientIdentity {
    client: String,
    next_hold: AtomicU64,
}

impl Owners {
    pub(crate) fn new() -> Self {
        Self(Arc::new(ClientIdentity { client: new_uuid().to_string(), next_hold: AtomicU64::new(1) }))
    }

    pub(crate) fn client(&self) -> &str {
        &self.0.client
    }

    /// The name of the client's connections: this one, the id, the host and the process.
    pub(crate) fn connection_name(&self, client_name: &str) -> String {
        let host = rustix::system::uname();
        let host = host.nodename().to_string_lossy();
        // A name of a connection has no spaces, and its parts are told apart by colons.
        let is_plain = |letter: char| letter.is_ascii_alphanumeric() || "-._".contains(letter);
        let host: String = host.chars().map(|letter| if is_plain(letter) { letter } else { '-' }).take(64).collect();
        format!("{client_name}:{}:{host}:{}", self.client(), std::process::id())
    }

    /// Draws an owner that was never used before.
    pub(crate) fn draw(&self, thread: ThreadNumber) -> (HoldNumber, OwnerId) {
        let hold = HoldNumber(self.0.next_hold.fetch_add(1, Ordering::Relaxed));
        (hold, OwnerId { drawn: Some((self.clone(), thread, hold)), text: OnceBox::new() })
    }
}

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
pub(crate) struct ThreadId(Arc<Thread>);

#[derive(Debug)]
struct Thread {
    number: ThreadNumber,
    ended: AtomicBool,
}

impl ThreadId {
    /// Returns the calling thread. A destructor that runs after the thread-local data is gone belongs to the same
    /// thread, which has ended: nothing can tell when the destructor is over.
    pub(crate) fn current() -> Self {
        CURRENT.try_with(|current| current.get_or_init(|| RunningThread(Self::numbered())).0.clone()).unwrap_or_else(
            |_| {
                let thread = Self::numbered();
                thread.0.ended.store(true, Ordering::Release);
                thread
            },
        )
    }

    /// A new identity with the number of the calling thread.
    fn numbered() -> Self {
        let fresh = || ThreadNumber(NEXT_THREAD.fetch_add(1, Ordering::Relaxed));
        let number = NUMBER.get().unwrap_or_else(fresh);
        NUMBER.set(Some(number));
        Self(Arc::new(Thread { number, ended: AtomicBool::new(false) }))
    }

    pub(crate) fn number(&self) -> ThreadNumber {
        self.0.number
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.0.ended.load(Ordering::Acquire)
    }
}

/// A thread-local value that records the end of the thread.
struct RunningThread(ThreadId);

impl Drop for RunningThread {
    fn drop(&mut self) {
        self.0.0.ended.store(true, Ordering::Release);
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
    use std::hash::{Hash, Hasher};

    use super::*;

    #[cfg(shuttle)]
    impl ThreadId {
        /// A simulated thread: the scheduler runs all of them in one thread of the system.
        pub(crate) fn for_test() -> Self {
            NUMBER.set(None);
            Self::numbered()
        }
    }

    impl PartialEq for OwnerId {
        fn eq(&self, other: &Self) -> bool {
            self.as_str() == other.as_str()
        }
    }

    impl Eq for OwnerId {}

    impl Hash for OwnerId {
        fn hash<H: Hasher>(&self, state: &mut H) {
            self.as_str().hash(state);
        }
    }

    #[test]
    fn an_owner_is_client_thread_and_hold() {
        let owners = Owners::new();
        let thread = ThreadId::current();
        let (hold, owner) = owners.draw(thread.number());
        let text = format!("{}:{}.{}", owners.client(), thread.number().0, hold.0);
        let sent = || owner.with_bytes(<[u8]>::to_vec);
        assert_eq!((owner.to_string(), sent()), (text.clone(), text.clone().into_bytes()));
        assert_eq!((owner.as_str(), sent()), (&*text, text.clone().into_bytes()), "kept from now on");
        assert_eq!(owner.clone(), OwnerId::encoded(text));
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
