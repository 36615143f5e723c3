//! The server of an example: the server named by `REDIS_URL`, or a throw-away server.

use std::error::Error;

use crate::{RedisServer, missing_server};

/// A server for an example; a throw-away server ends when this value is dropped, or when the process ends.
pub struct ExampleServer {
    url: String,
    _throw_away: Option<RedisServer>,
}

impl ExampleServer {
    /// Takes the server named by `REDIS_URL`, or starts a server on a free port and prints the port.
    ///
    /// # Errors
    ///
    /// No `redis-server` is installed, and `REDIS_URL` is not set.
    pub fn open() -> Result<Self, Box<dyn Error + Send + Sync>> {
        if let Ok(url) = std::env::var("REDIS_URL") {
            println!("server: the one that REDIS_URL names\n"); // the URL itself may hold a password
            return Ok(Self { url, _throw_away: None });
        }
        if let Some(advice) = missing_server() {
            return Err(format!("{advice}, or set REDIS_URL to a server, like redis://localhost").into());
        }
        let server = RedisServer::start();
        println!("server: a throw-away redis-server on port {}\n", server.port());
        Ok(Self { url: server.url(), _throw_away: Some(server) })
    }

    /// The URL to connect to.
    pub fn url(&self) -> &str {
        &self.url
    }
}
