//! The token lock: one value under the key, as most lock recipes for Redis do.

mod without_scripts;

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;

use super::{AcquireArgs, Backoff, Kind, ONLY_ONCE, prelude::*, renew_by};
use without_scripts::{CompareAndDelete, TokenValue};

static ACQUIRE: Script = lua!("token/acquire.lua");
static REENTER: Script = lua!("token/reenter.lua");
static RELEASE: Script = lua!("token/release.lua");
static RENEW: Script = lua!("token/renew.lua");
static FORCE_RELEASE: Script = lua!("token/force_release.lua");

/// The options of a token lock: value, release, waiting.
///
/// A token lock is a key with one value, set by `SET key value NX PX lease` and deleted only by the client that
/// knows the value. redis-py's `Lock`, redsync, node-redlock with one server, rslock and hand-written code for Jedis
/// and other clients do the same. These clients only compare the value with their own, so any value works with all
/// of them. The key must be equal: all of these clients use the name as given, prefix included, as the key.
///
/// ```no_run
/// use std::time::Duration;
///
/// use lockson::{ReleaseBy, TokenOptions};
/// # let client = lockson::Client::connect("redis://localhost")?;
/// // `redis.lock("report", timeout=30)` in Python waits for this one, and the other way round.
/// let guard = client.get_token_lock("report").lock()?;
/// guard.unlock()?;
///
/// // For users who may run no scripts.
/// let options = TokenOptions::new().with_release_by(ReleaseBy::Transaction);
/// let guard = client.get_token_lock_with("report", options).with_lease(Duration::from_secs(30)).lock()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone)]
#[must_use = "options do nothing until a lock is made with them"]
pub struct TokenOptions {
    value: Arc<dyn Fn(&str) -> String + Send + Sync>,
    release_by: ReleaseBy,
    repairs: bool,
    backoff: Backoff,
    own: CompareAndDelete,
}

/// The form of the release of a token lock, which deletes the key only if the value is still the holder's.
///
/// Without scripts, a lock lives as long as its lease: a take without [`with_lease`](crate::Lock::with_lease) is
/// `BadInput`, a second take by the holding thread is `AlreadyHeld`, [`extend`](crate::Hold::extend) is `Unsupported`,
/// and the lock is no part of a multi-lock or a red lock. A missing right is noticed at the first release; the lock is
/// then held until the end of its lease. A [`Durability`](crate::Durability), also one of the client, runs a script
/// after each grant, for which the user needs `+eval`.
///
/// Use one form for each name in a client: a thread that holds the lock through a handle of one form cannot take it
/// through a handle of another form, and gets an error.
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// use std::time::Duration;
///
/// use lockson::{ReleaseBy, TokenOptions};
///
/// // The server has `DELEX`, so one plain command gives the lock back.
/// let options = TokenOptions::new().with_release_by(ReleaseBy::Server);
/// let guard = client.get_token_lock_with("report", options).with_lease(Duration::from_secs(30)).lock()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ReleaseBy {
    /// A Lua script compares and deletes. One round trip, on every server that allows scripts.
    #[default]
    Script,
    /// `WATCH`, `GET`, `MULTI`, `DEL`, `EXEC`. Two round trips, and no script for any other request: for servers and
    /// users without the right to run scripts.
    Transaction,
    /// A command of the server: `DELEX key IFEQ value` (Redis since 8.4) or `DELIFEQ key value` (Valkey since 9.0).
    /// One round trip, and no script for any other request. On a server without both commands the release fails with
    /// [`Unsupported`](crate::ErrorKind::Unsupported). Clone the options: clones share the command that was found.
    Server,
}

impl TokenOptions {
    /// Starts with the default of every option.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::TokenOptions;
    ///
    /// let lock = client.get_token_lock_with("report", TokenOptions::new().with_repair_missing_ttl(true));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn new() -> Self {
        Self {
            value: Arc::new(str::to_owned),
            release_by: ReleaseBy::default(),
            repairs: false,
            backoff: Backoff::default(),
            own: CompareAndDelete::default(),
        }
    }

    /// Sets the function from the owner id, `<client uuid>:<thread>.<hold>`, to the value of the key.
    ///
    /// The function must return the same value for the same id, and different values for different ids: with equal
    /// values one holder could release the lock of another. Defaults to the owner id itself.
    ///
    /// ```
    /// # use lockson::TokenOptions;
    /// // Shows operators which service holds the lock, with `GET report`.
    /// let options = TokenOptions::new().with_value(|owner| format!("billing/{owner}"));
    /// // Plain letters, for a proxy or a dashboard that accepts no other characters.
    /// let options = TokenOptions::new().with_value(|owner| owner.replace([':', '.'], "-"));
    /// ```
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::TokenOptions;
    ///
    /// // What a tool of ours looks for in the value.
    /// let options = TokenOptions::new().with_value(|owner| format!("billing/{owner}"));
    /// let guard = client.get_token_lock_with("report", options).lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_value(self, of_owner: impl Fn(&str) -> String + Send + Sync + 'static) -> Self {
        Self { value: Arc::new(of_owner), ..self }
    }

    /// Sets the form of the release. Defaults to [`ReleaseBy::Script`].
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::{ReleaseBy, TokenOptions};
    ///
    /// // Where scripts are not allowed.
    /// let options = TokenOptions::new().with_release_by(ReleaseBy::Transaction);
    /// let lock = client.get_token_lock_with("report", options).with_lease(std::time::Duration::from_secs(30));
    /// let guard = lock.lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_release_by(self, release_by: ReleaseBy) -> Self {
        Self { release_by, ..self }
    }

    /// Sets whether a waiter gives a key without a time to live its own lease, so that the key cannot block for ever.
    ///
    /// Such a key is left by code that takes the lock with `SETNX` and dies before `EXPIRE`. A key without expiry may
    /// also be intended: then its holder loses the lock. Needs [`ReleaseBy::Script`]. Defaults to `false`.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::TokenOptions;
    ///
    /// // Others of our programs set the key and then die before they set its time to live.
    /// let options = TokenOptions::new().with_repair_missing_ttl(true);
    /// let guard = client.get_token_lock_with("report", options).lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_repair_missing_ttl(self, repairs: bool) -> Self {
        Self { repairs, ..self }
    }

    /// Sets the pauses of waiters between two requests: a release of a token lock publishes no message.
    ///
    /// The pauses are at most a second, and not longer than the lock lives. Defaults to [`Backoff::default`].
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// use lockson::{Backoff, TokenOptions};
    ///
    /// let options = TokenOptions::new().with_backoff(Backoff::fixed(Duration::from_millis(100)));
    /// let guard = client.get_token_lock_with("report", options).lock()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_backoff(self, backoff: Backoff) -> Self {
        Self { backoff, ..self }
    }
}

impl Default for TokenOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// A function that panicked is called again as it is.
impl UnwindSafe for TokenOptions {}
impl RefUnwindSafe for TokenOptions {}

impl fmt::Debug for TokenOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokenOptions")
            .field("release_by", &self.release_by)
            .field("repair_missing_ttl", &self.repairs)
            .finish_non_exhaustive()
    }
}

/// The lock of most recipes: `SET NX PX`, and compare-and-delete.
#[derive(Debug)]
pub(crate) struct TokenLock(pub(crate) TokenOptions);

impl Kind for TokenLock {
    fn label(&self, _: Side) -> LockKind {
        LockKind::Token
    }

    fn family(&self) -> &'static str {
        if self.by_script() { "token" } else { "token without scripts" }
    }

    fn runs_scripts(&self) -> bool {
        self.by_script()
    }

    fn check_lease(&self, lease: Option<Lease>) -> Result<(), &'static str> {
        match lease {
            _ if self.by_script() => Ok(()),
            None => Err("without scripts it cannot be renewed; take it with_lease(), or with ReleaseBy::Script"),
            Some(_) if self.0.repairs => {
                Err("with_repair_missing_ttl() needs a script; leave it out, or use ReleaseBy::Script")
            }
            Some(_) => Ok(()),
        }
    }

    fn check_reentry(&self, _: Counts) -> Result<(), &'static str> {
        if self.by_script() { Ok(()) } else { Err(ONLY_ONCE) }
    }

    fn encode_owner(&self, owner: OwnerId) -> OwnerId {
        OwnerId::encoded((self.0.value)(&owner.to_string()))
    }

    fn pauses(&self) -> Option<Backoff> {
        let Backoff(pauses) = self.0.backoff.clone();
        Some(Backoff::new(move |tries| pauses(tries).map(|pause| pause.min(LONGEST_PAUSE))))
    }

    fn channel<'a>(&self, _: &'a LockName, _: &'a OwnerId) -> Joined<'a> {
        Joined::of("")
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        let AcquireArgs { name, owner, lease, .. } = *args;
        if !self.by_script() {
            let value = self.value(name, owner);
            return Call::with_round_trips(name, move |send, _| value.acquire(send, lease));
        }
        let call = ACQUIRE.call(name, &[name.key()], Attempt::read).arg(lease.millis()).arg(owner);
        call.arg(u8::from(self.0.repairs))
    }

    fn reenter(&self, name: &LockName, owner: &OwnerId, raise: Raise, _: Counts) -> Call<Result<(), Loss>> {
        REENTER.call(name, &[name.key()], read_outcome).arg(raise.endless.millis()).arg(owner)
    }

    fn release(&self, name: &LockName, owner: &OwnerId, remaining: Option<(Counts, Lease)>) -> Call<Released> {
        if !self.by_script() {
            let value = self.value(name, owner);
            return Call::with_round_trips(name, move |send, _| Ok(value.release(send)?.map(|()| NO_RECEIVERS)));
        }
        let call = RELEASE.call(name, &[name.key()], |reply| Some(read_outcome(reply)?.map(|()| NO_RECEIVERS)));
        call.arg(owner).arg(remaining.map_or(0, |(_, lease)| lease.millis()))
    }

    fn renew(&self, locks: &[Renewal]) -> Call<Vec<RenewalAnswer>> {
        renew_by(&RENEW, locks)
    }

    fn look(&self, claims: &[Claim]) -> Call<Vec<RenewalAnswer>> {
        look::each(claims, |claim| command("GET", claim.name.key()), look::by_owner)
    }

    fn force_release(&self, name: &LockName) -> Call<IfLock<bool>> {
        if !self.by_script() {
            return without_scripts::force_release(name);
        }
        FORCE_RELEASE.call(name, &[name.key()], read_forced)
    }

    /// Reads the value of the holder. The hold count is not stored, so it counts as 1.
    fn holder(&self, name: &LockName) -> Call<IfLock<Option<(String, u64)>>> {
        Call::plain("GET", name, |reply| match reply {
            Value::Nil => Some(Ok(None)),
            value => Some(Ok(Some((text(value)?, 1)))),
        })
    }
}

impl TokenLock {
    fn by_script(&self) -> bool {
        self.0.release_by == ReleaseBy::Script
    }

    /// This hold, for requests without scripts.
    fn value(&self, name: &LockName, owner: &OwnerId) -> TokenValue {
        let own = (self.0.release_by == ReleaseBy::Server).then(|| self.0.own.clone());
        TokenValue { name: name.clone(), owner: owner.clone(), own }
    }
}

/// The longest pause of a waiter, whatever the back-off returns.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
