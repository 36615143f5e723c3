//! The two peers that are built with this program: the bare floor, and Lockson.

use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lockson::{Client, Guard, Lock, RedLock};

use crate::bare::{self, Bare};
use crate::speak::{Clock, Locks, NOTHING, Threads, at_once, serve, unknown};
use crate::wire::Wire;

/// Becomes a peer.
pub(crate) fn run(name: &str) {
    match name {
        "floor" => at_once(serve::<Floor>("-")),
        "lockson" => at_once(serve::<Lockson>(env!("CARGO_PKG_VERSION"))),
        _ => panic!("no such peer: {name}"),
    }
}

struct Lockson {
    client: Client,
    urls: Vec<String>,
}

impl Locks for Lockson {
    type World = Threads;
    type Lock = Lock;
    type Hold = Guard;
    const RENEWS: bool = true;

    async fn open(urls: Vec<String>) -> Self {
        Self { client: connect(&urls[0]), urls }
    }

    async fn lock(&self, name: &str) -> Lock {
        self.client.get_lock(name)
    }

    async fn take(lock: &Lock) -> Guard {
        lock.lock().expect("redis answers")
    }

    async fn give(hold: Guard) {
        hold.unlock().expect("the lock was held");
    }

    fn believes(hold: &Guard) -> bool {
        hold.is_held()
    }

    async fn pairs(&self, kind: &str, name: &str, clock: &mut Clock) -> Result<(), String> {
        let ten = || Lock::multi((0..10).map(|each| self.client.get_lock(format!("{name}:{each}"))));
        let lock = match kind {
            "reentry" => self.client.get_lock(name),
            "multi" => ten(),
            "semaphore" => {
                let semaphore = self.client.get_semaphore(name);
                semaphore.set_permits_once(5).map_err(|error| error.to_string())?;
                while clock.goes_on() {
                    semaphore.acquire(1).and_then(|permit| permit.release()).map_err(|error| error.to_string())?;
                }
                return Ok(());
            }
            "red" => {
                let clients: Vec<Client> = self.urls.iter().map(|url| connect(url)).collect();
                let red = RedLock::new(clients.iter().map(|client| client.get_lock(name)));
                // The servers are new and hold no lock that they could have forgotten.
                let red = red.with_rejoin_after(std::time::Duration::ZERO);
                while clock.goes_on() {
                    red.lock().and_then(|guard| guard.unlock()).map_err(|error| error.to_string())?;
                }
                return Ok(());
            }
            _ => return unknown(),
        };
        let outer = (kind == "reentry").then(|| lock.lock()).transpose().map_err(|error| error.to_string())?;
        while clock.goes_on() {
            lock.lock().and_then(|guard| guard.unlock()).map_err(|error| error.to_string())?;
        }
        drop(outer);
        Ok(())
    }
}

fn connect(url: &str) -> Client {
    Client::connect(url).expect("redis is reached")
}

/// The least work of any client: the library's scripts on a bare connection, a thread that listens, and a woken thread
/// that asks.
struct Floor {
    url: String,
    kept: Mutex<Vec<(String, Arc<Mutex<Bottom>>)>>,
}

struct Bottom {
    bare: Bare,
    url: String,
    name: String,
    messages: OnceLock<Receiver<()>>,
}

impl Locks for Floor {
    type World = Threads;
    type Lock = Arc<Mutex<Bottom>>;
    type Hold = Arc<Mutex<Bottom>>;
    const RENEWS: bool = false;

    async fn open(urls: Vec<String>) -> Self {
        Self { url: urls[0].clone(), kept: Mutex::default() }
    }

    /// The connection of each name is opened once.
    async fn lock(&self, name: &str) -> Self::Lock {
        let mut kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, lock)) = kept.iter().find(|(other, _)| other == name) {
            return Arc::clone(lock);
        }
        let (url, named) = (self.url.clone(), name.to_owned());
        let bottom = Bottom { bare: Bare::new(&url, name), url, name: named, messages: OnceLock::new() };
        let lock = Arc::new(Mutex::new(bottom));
        kept.push((name.to_owned(), Arc::clone(&lock)));
        lock
    }

    async fn take(lock: &Self::Lock) -> Self::Hold {
        let mut bottom = lock.lock().unwrap_or_else(PoisonError::into_inner);
        while !bottom.bare.acquire() {
            if let Some(messages) = bottom.messages.get() {
                messages.recv().expect("the listener lives");
                continue;
            }
            let (sender, messages) = channel();
            let (connection, subject) = (Wire::open(&bottom.url), bare::channel(&bottom.name));
            std::thread::spawn(move || connection.listen(&subject, || sender.send(()).is_ok()));
            // The first question after the subscription may come before it is known; the release comes later.
            std::thread::sleep(std::time::Duration::from_millis(1));
            let _ = bottom.messages.set(messages);
        }
        drop(bottom);
        Arc::clone(lock)
    }

    async fn give(hold: Self::Hold) {
        hold.lock().unwrap_or_else(PoisonError::into_inner).bare.release();
    }

    fn believes(_: &Self::Hold) -> bool {
        true
    }

    async fn pairs(&self, kind: &str, name: &str, clock: &mut Clock) -> Result<(), String> {
        if kind != "reentry" {
            return unknown();
        }
        let lock = self.lock(name).await;
        let hold = Self::take(&lock).await;
        {
            let mut bottom = hold.lock().unwrap_or_else(PoisonError::into_inner);
            while clock.goes_on() {
                bottom.bare.reenter();
                bottom.bare.release_part();
            }
        }
        Self::give(hold).await;
        Ok(())
    }

    fn refuses(command: &str) -> Option<&'static str> {
        ["hot", "crowd", "many", "believes"].contains(&command).then_some(NOTHING)
    }
}
