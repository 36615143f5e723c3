//! A process of a story: its client, and a client for each server of a red lock.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lockson::{Client, Durability, RedLock};

use crate::callbacks::Eyes;
use crate::server::FIRST_PORT;

/// The clients of one process.
#[derive(Clone)]
pub struct Process {
    pub client: Client,
    reds: Vec<Client>,
    is_closed: Arc<AtomicBool>,
}

impl Process {
    /// Opens the clients.
    pub fn open(eyes: Option<&Arc<Eyes>>, url: &str, durability: Option<Durability>, reds: usize) -> Self {
        let red = |place| connect(eyes, &url_of(1 + u16::try_from(place).unwrap_or(0)), None);
        Self { client: connect(eyes, url, durability), reds: (0..reds).map(red).collect(), is_closed: Arc::default() }
    }

    /// The red lock on all of its servers.
    pub fn red_lock(&self) -> RedLock {
        RedLock::new(self.reds.iter().map(|client| client.get_lock("red"))).with_node_timeout(NODE_TIMEOUT)
    }

    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Relaxed)
    }

    pub fn close(&self) {
        self.is_closed.store(true, Ordering::Relaxed);
        self.client.close();
        self.reds.iter().for_each(Client::close);
    }
}

/// The URL of the server at a place.
pub fn url_of(place: u16) -> String {
    format!("redis://127.0.0.1:{}", FIRST_PORT + place)
}

/// Opens a client.
pub fn connect(eyes: Option<&Arc<Eyes>>, url: &str, durability: Option<Durability>) -> Client {
    let builder = Client::builder(url);
    let builder = durability.map_or(builder.clone(), |durability| builder.durability(durability));
    let builder = eyes.map_or(builder.clone(), |eyes| builder.observer(Arc::clone(eyes)));
    builder.connect().expect("no faults so far")
}

/// Most connections are opened in this time.
const NODE_TIMEOUT: Duration = Duration::from_millis(150);
