//! Leader election: candidates, the leadership of the elected candidate, and the view of others.

use std::sync::Arc;
use std::time::Duration;

use crate::cancel::Cancel;
use crate::durability::Durability;
use crate::engine::Named;
use crate::error::Result;
use crate::guard::{Guard, OwnedGuard};
use crate::hold::Hold;
use crate::kinds::leader::{self, Leader, LeaderLock, Reading};
use crate::lock::{Lock, OwnedLock};
use crate::name::LockName;
use crate::time::Deadline;
use crate::token::FencingToken;

/// An election by its name: one of its candidates leads at a time, and everybody can ask which one.
///
/// A leadership may end earlier than the leader expects, as a lock may; the leader learns of it before another
/// candidate can win, but a thread may be stopped between the check and the next write. Send the
/// [token](Leadership::token) with each write where a late write does harm.
///
/// Making a handle does no I/O and cannot fail.
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let election = client.get_election("scheduler");
/// let leadership = election.candidate("host-7:8080").campaign()?;
/// while leadership.is_held() {
///     // ... one round of work that one machine at a time may do ...
/// #   break;
/// }
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a handle does nothing until a candidate campaigns"]
pub struct Election(pub(crate) Named);

/// A candidate of an election, with the text by which others know it.
///
/// ```no_run
/// # use std::time::Duration;
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let candidate = client.get_election("scheduler").candidate("host-7:8080");
/// assert_eq!(candidate.text(), "host-7:8080");
/// match candidate.campaign_for(Duration::from_secs(5))? {
///     Some(leadership) => println!("we lead, with token {}", leadership.token()),
///     None => println!("another candidate leads"),
/// }
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a candidate does nothing until it campaigns"]
pub struct Candidate {
    lock: OwnedLock<Term>,
    text: Arc<str>,
}

/// The leadership of this process; dropping it resigns.
///
/// The leadership is renewed until then. A drop takes at most [`drop_timeout`](crate::ClientBuilder::drop_timeout);
/// where the outcome matters, call [`resign`](Guard::resign). A leadership may move to another thread. It answers as its
/// [`Hold`]: [`lost`](Hold::lost), [`wait_lost`](Hold::wait_lost) and [`on_lost`](Hold::on_lost) tell of its end.
///
/// ```no_run
/// # use std::time::Duration;
/// # let client = lockson::Client::connect("redis://localhost")?;
/// let leadership = client.get_election("scheduler").candidate("host-7").campaign()?;
/// leadership.on_lost(|loss| eprintln!("another candidate may lead soon: {loss}"));
/// // Or, on a thread of its own:
/// let hold = leadership.hold().clone();
/// std::thread::spawn(move || hold.wait_lost(Duration::MAX));
/// if leadership.is_held() {
///     // ... write, with leadership.token() ...
/// }
/// leadership.resign()?;
/// # Ok::<(), lockson::Error>(())
/// ```
pub type Leadership = OwnedGuard<Term>;

/// Marks the guard of a [leadership](Leadership), whose term it numbers.
///
/// ```no_run
/// fn number<On>(leadership: &lockson::Guard<lockson::Term, On>) -> u64 {
///     leadership.token().value()
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Term(FencingToken);

impl Election {
    /// Returns a handle whose candidates lead when replicas, or a disk, have it; see
    /// [`Lock::with_durability`](crate::Lock::with_durability). Set it before [`candidate`](Self::candidate).
    ///
    /// ```no_run
    /// # use lockson::Durability;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let election = client.get_election("scheduler").with_durability(Durability::replicas(1));
    /// let leadership = election.candidate("host-7").campaign()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_durability(&self, durability: Durability) -> Self {
        Self(self.0.with(|modifiers| modifiers.durability = Some(durability)))
    }

    /// Returns a handle whose waits end when `cancel` is used, those of its candidates included.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let stop = lockson::Cancel::new();
    /// let election = client.get_election("scheduler").with_cancel(&stop);
    /// let leadership = election.candidate("host-7").campaign()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_cancel(&self, cancel: &Cancel) -> Self {
        Self(self.0.with(|modifiers| modifiers.cancel = Some(cancel.clone())))
    }

    /// Returns the name of the election, with the prefix of the client.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// assert_eq!(client.get_election("scheduler").name(), "scheduler");
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn name(&self) -> &str {
        self.0.name.as_str()
    }

    /// Returns a candidate with this text, such as an address: at most 4,096 bytes. A longer text fails at the first
    /// use.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let leadership = client.get_election("scheduler").candidate("host-7:8080").campaign()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn candidate(&self, text: impl AsRef<str>) -> Candidate {
        let text: Arc<str> = text.as_ref().into();
        let kind = Arc::new(LeaderLock { candidate: Arc::clone(&text) });
        let term = |hold: &Hold| hold.token().map(Term);
        let lock = Lock::carrying(term, &self.0.handle, kind, self.0.name.clone());
        Candidate { lock: lock.with(self.0.modifiers.clone()).owned(), text }
    }

    /// Asks Redis who leads; `None` where no candidate does.
    ///
    /// A client that takes a fenced lock of this name, as Redisson can, keeps all candidates out and has no text: then
    /// the answer is `None`, too.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let leader = client.get_election("scheduler").leader()?;
    /// println!("{:?}", leader.map(|leader| leader.candidate().to_owned()));
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// `BadInput` for an impossible name; refusals and outages of the server.
    pub fn leader(&self) -> Result<Option<Leader>> {
        let reading = self.0.ask(|engine, name| engine.sender.ask(&leader::read(name)));
        reading.map(|reading| reading.leader)
    }

    /// Waits until the leader is another than `last`, for at most `wait`, and returns the leader then.
    ///
    /// `last` is what an earlier call returned. A leader that won again is another one, with another token. The answer
    /// equals `last` only if the time is up. [`Duration::MAX`] waits without limit.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let election = client.get_election("scheduler");
    /// let mut last = election.leader()?;
    /// loop {
    ///     println!("{:?}", last.as_ref().map(|leader| leader.candidate()));
    ///     last = election.wait_change(last.as_ref(), Duration::MAX)?;
    /// #   break;
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`leader`](Self::leader), but an unreachable server is asked again until the wait is over; without limit,
    /// for at most [`outage_limit`](crate::ClientBuilder::outage_limit). `Cancelled` and `Closed` as their names say.
    pub fn wait_change(&self, last: Option<&Leader>, wait: Duration) -> Result<Option<Leader>> {
        let cancel = self.0.modifiers.cancel.as_ref();
        let unwanted = |reading: &Reading| {
            // Without a message, the leader changes when the lock expires. One millisecond is added, because the key is
            // gone only after its last millisecond.
            let expires = u64::try_from(reading.ttl_ms).map(|ms| Duration::from_millis(ms.saturating_add(1)));
            (reading.leader.as_ref() == last).then_some(expires.unwrap_or(Duration::MAX))
        };
        let changed = self.0.ask(|engine, name| {
            engine.inquire(&leader::read(name), LockName::leader_channel, cancel, Deadline::after(wait), unwanted)
        });
        Ok(changed?.map_or_else(|| last.cloned(), |reading| reading.leader))
    }

    /// Ends the leadership of whatever candidate, and lets the others win. Returns whether there was a leader.
    ///
    /// A tool for operators. A leader with this crate is told at once if the server reports changes of keys (see
    /// [`Observer::losses_told_late`](crate::Observer::losses_told_late)); a leader that does not check goes on beside
    /// the next one.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// if client.get_election("scheduler").depose()? {
    ///     println!("another candidate leads soon");
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Lock::force_unlock`].
    pub fn depose(&self) -> Result<bool> {
        self.candidate("").lock.force_unlock()
    }
}

impl Candidate {
    /// Waits until this candidate leads, without limit.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let leadership = client.get_election("scheduler").candidate("host-7").campaign()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Lock::lock`], and `BadInput` for too long a text.
    pub fn campaign(&self) -> Result<Leadership> {
        self.checked()?.lock()
    }

    /// Leads if no other candidate does, without waiting; `None` where another one leads.
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let candidate = client.get_election("scheduler").candidate("host-7");
    /// if let Some(leadership) = candidate.try_campaign()? {
    ///     println!("we lead, with token {}", leadership.token());
    /// }
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Lock::try_lock`], and `BadInput` for too long a text.
    pub fn try_campaign(&self) -> Result<Option<Leadership>> {
        self.checked()?.try_lock()
    }

    /// Waits until this candidate leads, for at most `wait`; `None` when the time is up.
    ///
    /// ```no_run
    /// # use std::time::Duration;
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let candidate = client.get_election("scheduler").candidate("host-7");
    /// let leadership = candidate.campaign_for(Duration::from_secs(60))?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Lock::try_lock_for`], and `BadInput` for too long a text.
    pub fn campaign_for(&self, wait: Duration) -> Result<Option<Leadership>> {
        self.checked()?.try_lock_for(wait)
    }

    /// Campaigns, runs `work` as the leader, resigns, and returns what `work` returned: a job on one machine at a time.
    ///
    /// `work` has to return once [`lost`](Hold::lost) tells a loss; then the candidate campaigns again, and `work`
    /// runs again in its next term. So the outcome is that of a term that lasted to the end of `work`; those before are
    /// dropped. A [`Cancel`] and [`Client::stop_waiting`](crate::Client::stop_waiting) end the campaigns, not the work.
    /// A panic of `work` resigns, too.
    ///
    /// ```no_run
    /// # fn one_round(token: lockson::FencingToken) -> bool { true }
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// client.get_election("scheduler").candidate("host-7").lead(|leadership| {
    ///     while leadership.is_held() {
    ///         if one_round(leadership.token()) {
    ///             break; // all is done: nobody needs to lead
    ///         }
    ///     }
    /// })?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`campaign`](Self::campaign); then `work` has not run, or its last term was lost.
    pub fn lead<R>(&self, mut work: impl FnMut(&Leadership) -> R) -> Result<R> {
        loop {
            let leadership = self.campaign()?;
            let outcome = work(&leadership);
            match leadership.end_protected_work() {
                Err(error) if error.is_lost() => {}
                ended => return ended.map(|()| outcome),
            }
        }
    }

    /// Returns the text of this candidate.
    pub fn text(&self) -> &str {
        &self.text
    }

    fn checked(&self) -> Result<&OwnedLock<Term>> {
        LockName::check_length("a candidate", &self.text).map(|()| &self.lock)
    }
}

impl<On> Guard<Term, On> {
    /// Returns the token of this term, for the store; a later term has a greater one.
    ///
    /// ```no_run
    /// # fn write(amount: u32, token: i64) {}
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let leadership = client.get_election("scheduler").candidate("host-7").campaign()?;
    /// write(41, leadership.token().into()); // the store refuses a smaller token than it has seen
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn token(&self) -> FencingToken {
        self.carried.0
    }

    /// Ends the leadership, and returns the outcome.
    ///
    /// Takes at most [`command_timeout`](crate::ClientBuilder::command_timeout).
    ///
    /// ```no_run
    /// # let client = lockson::Client::connect("redis://localhost")?;
    /// let leadership = client.get_election("scheduler").candidate("host-7").campaign()?;
    /// if let Some(loss) = leadership.lost() {
    ///     eprintln!("the work since then was not protected: {loss}");
    /// }
    /// leadership.resign()?; // the same `Lost` then
    /// # Ok::<(), lockson::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`Guard::unlock`](crate::Guard::unlock).
    pub fn resign(self) -> Result<()> {
        self.unlock()
    }
}
