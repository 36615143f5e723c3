//! A lock over TLS, on a throw-away server that asks each client for a certificate; then what goes wrong, in words.
//!
//! `cargo run --features tls --example tls`

use std::error::Error;
use std::time::Duration;

use lockson::{Client, ErrorKind, Tls};
use lockson_harness::{Authority, RedisServer, Validity, missing_server};

type Outcome<T> = Result<T, Box<dyn Error + Send + Sync>>;

fn main() -> Outcome<()> {
    // In production an authority and its certificates are files that an operator, or a service mesh, puts somewhere.
    let authority = Authority::new();
    let server = start_server(&authority)?;
    let (mine, url) = (authority.client(Validity::Now), server.tls_url());
    println!("server: a throw-away redis-server at {url}, which asks for a certificate\n");

    let trusted = Tls::new().with_ca_file(authority.file());
    let tls = trusted.clone().with_client_certificate(&mine.file, &mine.key);
    let client = Client::builder(&url).tls(tls).connect()?;
    let guard = client.get_lock(NAME).lock()?;
    println!("held over TLS by {}", guard.owner());

    // Another process waits; the message of the release reaches it over TLS as well.
    let rival = Client::builder(&url).tls(trusted.clone().with_client_certificate(&mine.file, &mine.key)).connect()?;
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| rival.get_lock(NAME).try_lock_for(Duration::from_secs(10)).map(|it| it.is_some()));
        guard.unlock()?;
        expect(waiter.join().map_err(|_| "the waiter panicked")??)
    })?;
    println!("released; the waiter had it next\n");

    let expired = authority.client(Validity::Expired);
    refused("without a certificate", &url, trusted.clone())?;
    refused("with an old one", &url, trusted.clone().with_client_certificate(expired.file, expired.key))?;
    refused("with the system's authorities", &url, Tls::new())?;
    refused("by another name", &url, trusted.with_server_name("redis.example"))
}

fn start_server(authority: &Authority) -> Outcome<RedisServer> {
    if let Some(advice) = missing_server() {
        return Err(advice.into());
    }
    Ok(RedisServer::builder().mutual_tls(&authority.server()).start())
}

fn refused(what: &str, url: &str, tls: Tls) -> Outcome<()> {
    let error = Client::builder(url).tls(tls).connect().map(drop).err().ok_or("such a client must be refused")?;
    println!("{what}:\n  {error}");
    expect(error.kind() == ErrorKind::Config)
}

/// An example that shows the wrong result must fail.
#[track_caller]
fn expect(so: bool) -> Outcome<()> {
    if so { Ok(()) } else { Err(format!("wrong result at {}", std::panic::Location::caller()).into()) }
}

const NAME: &str = "lockson:example:tls";
