//! The lock of rslock, commanded in the words of `../../README.md`.

use std::error::Error;
use std::io::{BufRead, stdin};
use std::time::Duration;

use rslock::{Lock, LockError, LockManager};

struct Peer {
    /// Asks once.
    once: LockManager,
    /// Asks until the lock is granted.
    patient: LockManager,
    name: String,
    held: Option<Lock>,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, url, name] = &arguments[..] else { return Err("usage: peer URL NAME".into()) };
    let mut peer = Peer { once: asking(url, 1), patient: asking(url, u32::MAX), name: name.clone(), held: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(peer.once.query_redis_for_key_value(name.as_bytes()))?;
    println!("ready rslock {}", version());
    for line in stdin().lock().lines() {
        let line = line?;
        let (word, value) = line.split_once(' ').unwrap_or((&line, ""));
        println!("{}", runtime.block_on(peer.act(word, value))?);
    }
    Ok(())
}

fn asking(url: &str, times: u32) -> LockManager {
    let mut manager = LockManager::new(vec![url]);
    manager.set_retry(times, Duration::from_millis(20));
    manager
}

impl Peer {
    async fn act(&mut self, word: &str, value: &str) -> Result<&'static str, Box<dyn Error>> {
        match word {
            "try" => self.take(&self.once.clone(), milliseconds(value)?).await,
            "lock" => self.take(&self.patient.clone(), milliseconds(value)?).await,
            "unlock" => {
                // `unlock` does not report whether there was anything to release.
                self.once.unlock(self.held()?).await;
                Ok("done")
            }
            "extend" => match self.once.extend(self.held()?, milliseconds(value)?).await {
                Ok(longer) => {
                    self.held = Some(longer);
                    Ok("done")
                }
                Err(LockError::Unavailable) => Ok("not ours"),
                Err(error) => Err(error.into()),
            },
            "adopt" => {
                self.held = Some(Lock {
                    resource: self.name.clone().into_bytes(),
                    val: value.into(),
                    validity_time: 30_000,
                    lock_manager: self.once.clone(),
                });
                Ok("done")
            }
            _ => Err(format!("not understood: {word}").into()),
        }
    }

    async fn take(&mut self, manager: &LockManager, lease: Duration) -> Result<&'static str, Box<dyn Error>> {
        match manager.lock(self.name.as_str(), lease).await {
            Ok(lock) => {
                self.held = Some(lock);
                Ok("taken")
            }
            Err(LockError::Unavailable) => Ok("busy"),
            Err(error) => Err(error.into()),
        }
    }

    fn held(&self) -> Result<&Lock, &'static str> {
        self.held.as_ref().ok_or("no lock was taken before")
    }
}

fn milliseconds(text: &str) -> Result<Duration, std::num::ParseIntError> {
    text.parse().map(Duration::from_millis)
}

/// The version of the library, from the lock file beside the program.
fn version() -> &'static str {
    let entry = include_str!("../Cargo.lock").split("name = \"rslock\"\nversion = \"").nth(1);
    entry.and_then(|rest| rest.split('"').next()).unwrap_or("unknown")
}
