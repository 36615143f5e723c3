//! The spin lock: the plain lock without messages; a waiter asks, pauses, and asks again.

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use super::{Kind, prelude::*};
use crate::system::random;
use crate::time::up_to;

/// Redisson's spin lock.
#[derive(Debug)]
pub(crate) struct Spin {
    pub(crate) backoff: Backoff,
}

/// The pauses of a spin lock between two tries, and the number of tries.
///
/// A back-off is a function from the number of failed tries, beginning with 1, to the next pause; `None` gives up.
/// Three tries 500 ms apart:
///
/// ```
/// # use std::time::Duration;
/// # use lockson::Backoff;
/// let backoff = Backoff::new(|tries| (tries < 3).then_some(Duration::from_millis(500)));
/// ```
///
/// Of the threads of a process that wait for one lock, one asks for all, as often as all would together, but at most
/// as often as 16: it makes so many tries for one, each after such a part of its own pause. A long pause of the first
/// thread delays those behind it.
///
/// Giving up ends [`Lock::try_lock_for`](crate::Lock::try_lock_for) with `None`.
/// [`Lock::lock`](crate::Lock::lock) waits without limit all the same, a second at a time.
#[derive(Clone)]
pub struct Backoff(pub(crate) Arc<dyn Fn(u32) -> Option<Duration> + Send + Sync>);

impl Backoff {
    /// Makes a back-off from a function of the number of failed tries.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use lockson::Backoff;
    ///
    /// // A second apart, for a minute.
    /// let backoff = Backoff::new(|tries| (tries < 60).then_some(Duration::from_secs(1)));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn new(pauses: impl Fn(u32) -> Option<Duration> + Send + Sync + 'static) -> Self {
        Self(Arc::new(pauses))
    }

    /// Makes a back-off that begins with `first`, doubles up to `longest`, and adds up to a quarter at random.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use lockson::Backoff;
    ///
    /// let backoff = Backoff::exponential(Duration::from_millis(5), Duration::from_secs(1));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn exponential(first: Duration, longest: Duration) -> Self {
        Self::new(move |tries| {
            let pause = first.saturating_mul(1_u32.checked_shl(tries.saturating_sub(1)).unwrap_or(u32::MAX));
            let pause = pause.min(longest);
            Some(pause.saturating_add(up_to(pause / 4, random())))
        })
    }

    /// Makes a back-off with a constant pause. Without a pause the lock asks as fast as Redis answers.
    ///
    /// ```
    /// # use std::time::Duration;
    /// use lockson::Backoff;
    ///
    /// let backoff = Backoff::fixed(Duration::from_millis(50));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn fixed(pause: Duration) -> Self {
        Self::new(move |_| Some(pause))
    }
}

/// A function that panicked is called again as it is.
impl UnwindSafe for Backoff {}
impl RefUnwindSafe for Backoff {}

impl fmt::Debug for Backoff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Backoff(..)")
    }
}

impl Default for Backoff {
    /// Returns the back-off of Redisson: 1 ms, doubling up to 128 ms, each up to a quarter longer.
    fn default() -> Self {
        Self::exponential(Duration::from_millis(1), Duration::from_millis(128))
    }
}

impl Kind for Spin {
    fn label(&self, _: Side) -> LockKind {
        LockKind::Spin
    }

    fn pauses(&self) -> Option<Backoff> {
        Some(self.backoff.clone())
    }

    fn channel<'a>(&self, _: &'a LockName, _: &'a OwnerId) -> Joined<'a> {
        // No client subscribes to a channel of a spin lock.
        Joined::of("")
    }

    fn bundles(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pauses(backoff: &Backoff, tries: std::ops::RangeInclusive<u32>) -> Vec<Option<u128>> {
        tries.map(|tries| (backoff.0)(tries).map(|pause| pause.as_millis())).collect()
    }

    #[test]
    fn the_default_doubles_from_1_to_128_ms_plus_a_quarter() {
        for (tries, pause) in (1..=10).zip(pauses(&Backoff::default(), 1..=10)) {
            let base = 2_u128.pow(tries - 1).min(128);
            let pause = pause.unwrap();
            assert!((base..=base + base / 4).contains(&pause), "try {tries}: {pause} ms");
        }
        assert!(pauses(&Backoff::default(), u32::MAX..=u32::MAX)[0].is_some());
    }

    #[test]
    fn a_function_bounds_the_number_of_tries() {
        let backoff = Backoff::new(|tries| (tries < 3).then_some(Duration::from_millis(500)));
        assert_eq!(pauses(&backoff, 1..=3), [Some(500), Some(500), None]);
        assert_eq!(pauses(&Backoff::fixed(Duration::from_millis(7)), 1..=2), [Some(7), Some(7)]);
    }
}
