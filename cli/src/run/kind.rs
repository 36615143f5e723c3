//! The kinds of locks under which a command can run.

use std::time::Duration;

use clap::Args;
use lockson::{Cancel, Client, ExpiringPermits, Guard, Hold, Leadership, Lock, Result};

use super::{Options, duration};

/// The kind of the lock; without an option a plain lock.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub(super) struct Kind {
    /// Serves waiters in the order in which they came
    #[arg(long)]
    fair: bool,
    /// Gives the command a fencing token, which rises with each holder
    #[arg(long)]
    fenced: bool,
    /// Waits by asking again, without the right to subscribe
    #[arg(long)]
    spin: bool,
    /// Shares the lock with redis-py, redsync, node-redlock and rslock
    #[arg(long)]
    token: bool,
    /// Takes the read side of a read-write lock
    #[arg(long)]
    read: bool,
    /// Takes the write side of a read-write lock
    #[arg(long)]
    write: bool,
    /// Takes so many permits of a semaphore
    #[arg(long, value_name = "NUMBER", value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) permits: Option<u32>,
    /// Leads an election under this text [default: host and process id]
    #[arg(long, value_name = "CANDIDATE", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    #[arg(conflicts_with = "lease")]
    leader: Option<String>,
    /// Runs the command if no machine ran it within the time
    #[arg(long, value_name = "TIME", value_parser = duration, conflicts_with_all = ["wait", "lease"])]
    pub(super) once_per: Option<Duration>,
}

/// What the command runs under.
pub(super) enum Taken {
    Lock(Guard),
    Permits(ExpiringPermits),
    Leadership(Leadership),
}

/// How long a command rests whose lock was waited for: the lock may have been taken away from its holder, who is told
/// at the latest 200 ms after the grant, and later on a busy machine.
const REST: Duration = Duration::from_millis(250);

/// Takes the lock of the options, and tells for how long the command must rest; `None` if the lock is not free in time.
pub(super) fn take(client: &Client, options: &Options, cancel: &Cancel) -> Result<Option<(Taken, Duration)>> {
    let wait = match options.kind.once_per {
        Some(_) => Duration::ZERO,
        None => options.wait.unwrap_or(Duration::MAX),
    };
    match ask(client, options, cancel, Duration::ZERO) {
        Ok(Some(taken)) => return Ok(Some((taken, Duration::ZERO))),
        Ok(None) if wait.is_zero() => return Ok(None),
        Err(error) if wait.is_zero() || !error.is_transient() => return Err(error),
        Ok(None) | Err(_) => {}
    }
    Ok(ask(client, options, cancel, wait)?.map(|taken| (taken, REST)))
}

fn ask(client: &Client, options: &Options, cancel: &Cancel, wait: Duration) -> Result<Option<Taken>> {
    let (kind, name) = (&options.kind, &options.name);
    if let Some(permits) = kind.permits {
        let mut semaphore = client.get_permit_expirable_semaphore(name).with_cancel(cancel);
        if let Some(of) = options.of {
            semaphore.set_permits_once(of)?;
        }
        if let Some(lease) = options.lease {
            semaphore = semaphore.with_lease(lease);
        }
        return Ok(semaphore.try_acquire_for(permits, wait)?.map(Taken::Permits));
    }
    if let Some(text) = &kind.leader {
        let text = if text.is_empty() { &host_and_process() } else { text };
        let candidate = client.get_election(name).with_cancel(cancel).candidate(text);
        return Ok(candidate.campaign_for(wait)?.map(Taken::Leadership));
    }
    let mut lock = kind.lock(client, name).with_cancel(cancel);
    if let Some(lease) = kind.once_per.or(options.lease) {
        lock = lock.with_lease(lease);
    }
    Ok(lock.try_lock_for(wait)?.map(Taken::Lock))
}

impl Kind {
    fn lock(&self, client: &Client, name: &str) -> Lock {
        match self {
            Self { fair: true, .. } => client.get_fair_lock(name),
            Self { fenced: true, .. } => client.get_fenced_lock(name).into(),
            Self { spin: true, .. } => client.get_spin_lock(name),
            Self { token: true, .. } => client.get_token_lock(name),
            Self { read: true, .. } => client.get_read_write_lock(name).read(),
            Self { write: true, .. } => client.get_read_write_lock(name).write(),
            _ => client.get_lock(name),
        }
    }
}

impl Taken {
    pub(super) fn hold(&self) -> &Hold {
        match self {
            Self::Lock(guard) => guard.hold(),
            Self::Permits(permits) => permits.hold(),
            Self::Leadership(leadership) => leadership.hold(),
        }
    }

    /// The owner as Redis has it; of permits, their ids.
    pub(super) fn owner(&self) -> String {
        match self {
            Self::Permits(permits) => permits.ids().iter().map(ToString::to_string).collect::<Vec<_>>().join(","),
            _ => self.hold().owner().to_owned(),
        }
    }

    pub(super) fn release(self) -> Result<()> {
        match self {
            Self::Lock(guard) => guard.unlock(),
            Self::Permits(permits) => permits.release(),
            Self::Leadership(leadership) => leadership.resign(),
        }
    }

    /// Lets the lock expire.
    pub(super) fn keep(self) -> Result<()> {
        if let Self::Lock(guard) = self {
            guard.keep_until_expiry();
        }
        Ok(())
    }
}

fn host_and_process() -> String {
    let host = nix::unistd::gethostname().unwrap_or_default();
    format!("{}:{}", host.display(), std::process::id())
}
