//! The red lock: most of several locks, on servers that know nothing of each other.

mod most;
mod votes;

use std::ops::{Deref, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

use crate::engine::Grant;
use crate::engine::several::{Form, SingleLock, Take, list};
use crate::error::{Error, ErrorKind, Result};
use crate::listing::LockKind;
use crate::lock::Lock;
use most::Most;
use votes::majority;

/// Locks on independent servers as one: the lock is held while more than half of them are held.
///
/// For servers that do not replicate each other, three or five of them, with a [`Client`](crate::Client) for each.
/// A server that dies takes no lock with it, and a minority of dead servers delays nobody for more than one
/// [`with_node_timeout`](Self::with_node_timeout). All servers are asked at the same time. A server that does not
/// answer in time is told to give back in the background, and is left alone for a second or more.
///
/// It is taken, asked and given back as any [`Lock`]. The modifiers of `Lock`, like
/// [`with_lease`](Lock::with_lease), return a `Lock` with the settings that the red lock had, so the settings of the
/// red lock come first.
///
/// **What it does not promise.** The hold ends by the clock of this process, and the locks end by the clocks of
/// the servers: a clock that runs faster by more than 1 %, or that is set forward, ends a hold too late. A thread may
/// be stopped between its last [`is_held`](crate::Hold::is_held) and its next write, here as with any lock that
/// expires. A server that restarts without data would forget the vote; it gets no new vote for
/// [`with_rejoin_after`](Self::with_rejoin_after). Where a late or second writer does harm, let the resource refuse it
/// by the token of a [fenced lock](crate::Client::get_fenced_lock), which also needs one server only. Martin
/// Kleppmann's "How to do distributed locking" (2016) and the answer of Redis's author tell both sides.
///
/// [`Hold::remaining`](crate::Hold::remaining) counts until the moment from which on fewer than a majority are held,
/// [`Hold::lost`](crate::Hold::lost) tells the loss after which too few were left, and
/// [`Hold::members`](crate::Hold::members) lists the locks that were granted. Too few servers for a majority are
/// [`ErrorKind::Quorum`]. A server whose replicas are late with a [`Durability`](crate::Durability) does not vote;
/// several independent servers seldom need replicas as well. Everything else is as with [`Lock::multi`]. A red lock
/// cannot contain a group, be a part of one, have two locks on one server, or contain a token lock without scripts.
///
/// The algorithm is Redlock of the Redis documentation; Redisson has it as `RedissonRedLock`.
///
/// ```no_run
/// use lockson::{Client, RedLock};
///
/// let clients = ["redis://one", "redis://two", "redis://three"].map(|url| Client::builder(url).connect_lazily());
/// let clients = clients.into_iter().collect::<lockson::Result<Vec<_>>>()?;
/// let guard = RedLock::new(clients.iter().map(|client| client.get_lock("import"))).lock()?;
/// // ... also if one of the three servers dies now ...
/// guard.unlock()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until it is locked"]
pub struct RedLock {
    lock: Lock,
    locks: Vec<Lock>,
    terms: Terms,
}

/// How a red lock treats its servers.
#[derive(Clone, Copy, Debug)]
struct Terms {
    /// The time limit of a request to one server.
    node_timeout: Duration,
    /// The time after its start for which a server has no vote.
    rejoin_after: Option<Duration>,
}

impl RedLock {
    /// Returns the locks, each on a server of its own, as one.
    ///
    /// ```no_run
    /// # use lockson::{Client, RedLock};
    /// # let (one, two, three) = (Client::connect("a")?, Client::connect("b")?, Client::connect("c")?);
    /// let lock = RedLock::new([&one, &two, &three].map(|client| client.get_lock("import")));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn new(locks: impl IntoIterator<Item = Lock>) -> Self {
        Self::of(locks.into_iter().collect(), Terms { node_timeout: NODE_TIMEOUT, rejoin_after: None })
    }

    fn of(locks: Vec<Lock>, terms: Terms) -> Self {
        Self { lock: Lock::several(locks.iter().cloned(), Arc::new(terms)), locks, terms }
    }

    /// Returns a red lock that waits for at most `limit` for each server, 1 ms to 10 s. Default: 50 ms.
    ///
    /// Much shorter than the lease, and longer than a new connection with its login takes; the `command_timeout` of the
    /// clients bounds it, too. Where the lease is not longer, one silent server makes a take fail as if the lock were
    /// busy.
    ///
    /// ```no_run
    /// # use lockson::{Lock, RedLock};
    /// # use std::time::Duration;
    /// # fn locks() -> Vec<Lock> { vec![] }
    /// let guard = RedLock::new(locks()).with_node_timeout(Duration::from_millis(200)).lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_node_timeout(&self, limit: Duration) -> Self {
        Self::of(self.locks.clone(), Terms { node_timeout: limit, ..self.terms })
    }

    /// Returns a red lock in which a server has no vote for `after` after its start. Default: the
    /// [`watchdog`](crate::ClientBuilder::watchdog) timeout of its client, or the lease of the lock if that is longer.
    ///
    /// A server that restarts without its data has forgotten its vote, and a second vote could make a second majority.
    /// After the longest lease in use, each lock of the time before is over. Zero is for servers that were never used
    /// before, as in tests: without it, servers that have just been started for the first time make every take fail
    /// with [`ErrorKind::Quorum`]. A server whose user may not ask `INFO server` always votes.
    ///
    /// ```no_run
    /// # use lockson::{Lock, RedLock};
    /// # use std::time::Duration;
    /// # fn locks() -> Vec<Lock> { vec![] }
    /// // Leases of up to five minutes are in use.
    /// let lock = RedLock::new(locks()).with_rejoin_after(Duration::from_secs(300));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_rejoin_after(&self, after: Duration) -> Self {
        Self::of(self.locks.clone(), Terms { rejoin_after: Some(after), ..self.terms })
    }
}

impl Deref for RedLock {
    type Target = Lock;

    fn deref(&self) -> &Lock {
        &self.lock
    }
}

impl From<RedLock> for Lock {
    /// Makes the lock that the red lock is, with its settings.
    fn from(red: RedLock) -> Self {
        red.lock
    }
}

impl Form for Terms {
    fn noun(&self) -> &'static str {
        "red lock"
    }

    /// The name is `red(a, b)` or `red(a on 3 servers)`.
    fn kind_and_name(&self, members: &[SingleLock]) -> Result<(LockKind, String)> {
        let name = match members {
            [first, others @ ..] if !others.is_empty() && others.iter().all(|other| other.name == first.name) => {
                format!("red({} on {} servers)", first.name, members.len())
            }
            _ => list("red", members),
        };
        let bad = |text: String| Err(Error::new(ErrorKind::BadInput, text).about(&*name));
        if !NODE_TIMEOUTS.contains(&self.node_timeout) {
            return bad("with_node_timeout() takes 1 ms to 10 s".to_owned());
        }
        let mut servers: Vec<&str> = members.iter().map(|one| one.handle.authority()).collect();
        servers.sort_unstable();
        if let Some(twice) = servers.windows(2).find(|pair| pair[0] == pair[1]) {
            let text = "its locks must be on independent servers, and two of them are on";
            return bad(format!("the votes of a red lock count once for each server: {text} {}", twice[0]));
        }
        Ok((LockKind::Red, name))
    }

    fn needs(&self, members: usize) -> usize {
        majority(members)
    }

    fn limit_each(&self) -> Option<Duration> {
        Some(self.node_timeout)
    }

    fn take(&self, take: Take<'_>) -> Result<Option<Vec<Option<Grant>>>> {
        Most::new(take, *self).run()
    }
}

/// The time limit of a request to one server: much shorter than a lease, much longer than a round trip.
const NODE_TIMEOUT: Duration = Duration::from_millis(50);
const NODE_TIMEOUTS: RangeInclusive<Duration> = Duration::from_millis(1)..=Duration::from_secs(10);
