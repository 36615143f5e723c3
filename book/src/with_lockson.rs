//! A process with Lockson's plain lock, for the scenes of most chapters.

use std::thread;
use std::time::Duration;

use lockson::{Client, Durability, ErrorKind, Guard, Lock};

use crate::Outcome;
use crate::actor::{Actor, Part};

/// Takes `client.get_lock("lock")`; without the option `lease` the lock is renewed while it is held.
pub(crate) struct Process {
    client: Client,
    lock: Lock,
    guards: Vec<Guard>,
    owner: String,
}

impl Process {
    pub(crate) fn new(part: &Part) -> Outcome<Self> {
        let client = client(&part.url)?;
        // The first take of a client sends its script; the scenes are about later ones.
        client.get_lock("warm-up").lock()?.unlock()?;
        let mut lock = client.get_lock("lock");
        if let Some(lease) = part.option("lease") {
            lock = lock.with_lease(Duration::from_millis(lease.parse()?));
        }
        if let Some(replicas) = part.number("replicas")? {
            let copied = Durability::replicas(u8::try_from(replicas)?).within(Duration::from_secs(1));
            lock = lock.with_durability(copied);
        }
        Ok(Self { client, lock, guards: vec![], owner: String::new() })
    }

    fn keep(&mut self, guard: Option<Guard>) -> bool {
        let held = guard.is_some();
        if let Some(guard) = guard {
            guard.owner().clone_into(&mut self.owner);
            self.guards.push(guard);
        }
        held
    }
}

/// Locks that live for 2 seconds and are renewed every half second. The defaults are 30 and 10 seconds.
pub(crate) fn client(url: &str) -> lockson::Result<Client> {
    Client::builder(url).watchdog(Duration::from_secs(2), Duration::from_millis(500)).connect()
}

impl Actor for Process {
    fn lock(&mut self) -> Outcome<bool> {
        match self.lock.try_lock() {
            Ok(guard) => Ok(self.keep(guard)),
            // No replica had the lock in time, so it was given back.
            Err(error) if error.kind() == ErrorKind::NotDurable => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn lock_within(&mut self, patience: Duration) -> Outcome<(bool, u64)> {
        let guard = self.lock.try_lock_for(patience)?;
        Ok((self.keep(guard), 1))
    }

    fn unlock(&mut self) -> Outcome<bool> {
        match self.guards.pop().ok_or("not held")?.unlock() {
            Ok(()) => Ok(true),
            Err(error) if error.is_lost() => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn value(&self) -> String {
        self.owner.clone()
    }

    fn perform(&mut self, what: &str) -> Outcome<String> {
        match what {
            "look" => Ok(self.guards.last().is_some_and(|guard| guard.is_held()).to_string()),
            "wait until lost" => {
                let loss = self.guards.last().and_then(|guard| guard.wait_lost(Duration::from_secs(10)));
                Ok(loss.map_or("not lost".into(), |loss| loss.to_string()))
            }
            "work that panics" => {
                let lock = self.lock.clone();
                let work = thread::spawn(move || -> lockson::Result<()> {
                    let _guard = lock.lock()?;
                    panic!("the work fails");
                });
                Ok(if work.join().is_err() { "panicked".into() } else { "done".into() })
            }
            "gate" => Ok(self.client.get_lock("lock").once_per(Duration::from_secs(3))?.to_string()),
            what => {
                // A section: take within the limit, work, release.
                let [limit, work] = numbers(what.strip_prefix("section ").ok_or("unknown")?)?;
                match self.lock.try_lock_for(limit)? {
                    Some(guard) => {
                        thread::sleep(work);
                        guard.unlock()?;
                        Ok("done".into())
                    }
                    None => Ok("gave up".into()),
                }
            }
        }
    }
}

/// Two numbers of milliseconds.
pub(crate) fn numbers(words: &str) -> Outcome<[Duration; 2]> {
    let (one, other) = words.split_once(' ').ok_or("two numbers are needed")?;
    Ok([Duration::from_millis(one.parse()?), Duration::from_millis(other.parse()?)])
}
