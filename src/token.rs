//! Fencing tokens: numbers of grants that only ever rise.

use std::fmt;

/// The number of one grant of a fenced lock; a later grant has a greater one.
///
/// Give it to the store with every write, and have the store refuse a writer whose token is smaller
/// than one it has seen: then a holder that was paused and lost the lock cannot overwrite what its
/// successor wrote. Re-entering does not change the token. Tokens go on rising after Redis lost its
/// data, because each is at least the server's time in microseconds; they can go back only if data
/// is lost *and* the server's clock is set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(u64);

impl Token {
    pub(crate) fn new(number: u64) -> Self {
        Self(number)
    }

    /// Returns the number, for the store.
    pub fn value(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
