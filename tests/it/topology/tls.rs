//! Servers behind TLS: what is verified, what is told, and that every promise of a plain connection is kept.

mod kept;
mod once;
mod rotated;
mod verified;

use lockson::Tls;
use lockson_harness::{Authority, Proxy};

use crate::support::prelude::*;

/// A server with a port for TLS, and the authority of its certificate.
struct Secured {
    server: RedisServer,
    authority: Authority,
}

impl Secured {
    fn start() -> Secured {
        let authority = Authority::new();
        let server = RedisServer::builder().tls(&authority.server()).start();
        Secured { server, authority }
    }

    /// A server that asks each client for a certificate.
    fn mutual() -> Secured {
        let authority = Authority::new();
        let server = RedisServer::builder().mutual_tls(&authority.server()).start();
        Secured { server, authority }
    }

    /// Settings that trust this server.
    fn tls(&self) -> Tls {
        Tls::new().with_ca_file(self.authority.file())
    }

    fn builder(&self) -> ClientBuilder {
        Client::builder(&self.server.tls_url()).tls(self.tls())
    }

    /// A proxy in front of the port for TLS, and the settings of a client through the proxy.
    fn proxied(&self) -> (Proxy, ClientBuilder) {
        let proxy = Proxy::start(self.server.tls_address());
        let url = format!("rediss://127.0.0.1:{}", proxy.port());
        (proxy, Client::builder(&url).tls(self.tls()))
    }

    fn client(&self) -> Client {
        self.builder().connect().expect("the server is trusted")
    }
}

/// Checks that a client takes and releases a lock.
#[track_caller]
fn works(client: &Client) {
    let guard = client.get_lock(crate::support::fresh("tls")).lock().unwrap();
    assert!(guard.is_held());
    guard.unlock().unwrap();
}
