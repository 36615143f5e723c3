//! TCP ports that no one else is going to take by accident.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use uuid::Uuid;

/// A port that was free a moment ago.
///
/// Another process can still take it before the caller does: be ready to ask again.
pub(crate) fn free_port() -> u16 {
    let listener = listen();
    listener.local_addr().expect("a bound listener has an address").port()
}

/// Binds a listener to a free port of the loopback interface.
pub(crate) fn listen() -> TcpListener {
    for _ in 0..TRIES {
        if let Ok(listener) = listen_on(candidate()) {
            return listener;
        }
    }
    panic!("{TRIES} random ports from {FIRST} on were all taken");
}

/// Binds a listener to this port of the loopback interface.
pub(crate) fn listen_on(port: u16) -> std::io::Result<TcpListener> {
    TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port)))
}

fn candidate() -> u16 {
    let [high, low, ..] = *Uuid::new_v4().as_bytes();
    FIRST + u16::from_be_bytes([high, low]) % COUNT
}

/// The range ends below the ports that the kernel hands to outgoing connections. A port in that
/// range could be taken by any client while its server is down, and a client that dials a dead
/// port there can even be connected to itself. It also leaves room for a cluster bus at + 10,000.
const FIRST: u16 = 10_000;
const COUNT: u16 = 12_000;
const TRIES: usize = 100;
