//! Fencing tokens: numbers that rise with each grant.

use std::fmt;
use std::num::TryFromIntError;

/// The number of a grant of a fenced lock; a later grant has a greater number.
///
/// Send the token to the store with every write, and let the store refuse a writer whose token is smaller than one
/// the store has seen: then a holder that was paused and lost the lock cannot overwrite the data of its successor. A
/// re-entry does not change the token. Tokens keep rising after Redis lost its data, because each token is at least
/// the time of the server in microseconds; tokens can fall only if the data is lost *and* the clock is set back, or is
/// that of a promoted replica and behind by more than the fail-over took. A lock with a
/// [`Durability`](crate::Durability) counts as granted only when replicas have its token.
///
/// A token is a non-negative signed number of 64 bits in Redis, so it fits a `BIGINT` without loss:
///
/// ```no_run
/// # use lockson::FencingToken;
/// # fn execute(sql: &str, values: [i64; 3]) -> usize { 1 }
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let guard = client.get_fenced_lock("stock:42").lock()?;
/// let update = "UPDATE stock SET amount = $1, token = $2 WHERE item = $3 AND token <= $2";
/// if execute(update, [41, guard.token().into(), 42]) == 0 {
///     println!("too late: a holder with a newer token has written");
/// }
/// // A number from the store becomes a token again.
/// assert!(FencingToken::try_from(7_i64).is_ok_and(|seen| seen < guard.token()));
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FencingToken(pub(crate) u64);

impl FencingToken {
    /// Returns the number, for the store.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let guard = client.get_fenced_lock("stock:42").lock()?;
    /// let header = format!("X-Fencing-Token: {}", guard.token().value());
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn value(self) -> u64 {
        self.0
    }
}

/// For stores with signed numbers, such as SQL; the number is the same.
impl From<FencingToken> for i64 {
    fn from(token: FencingToken) -> Self {
        token.0.cast_signed()
    }
}

/// A number from a store; a negative number is no token.
impl TryFrom<i64> for FencingToken {
    type Error = TryFromIntError;

    fn try_from(number: i64) -> Result<Self, TryFromIntError> {
        u64::try_from(number).map(Self)
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_survives_sql() {
        for number in [0, 1, 1_763_800_000_000_000, i64::MAX] {
            let token = FencingToken::try_from(number).unwrap();
            assert_eq!((i64::from(token), token.value()), (number, number.unsigned_abs()));
        }
        assert!(FencingToken::try_from(-1).is_err());
    }
}
