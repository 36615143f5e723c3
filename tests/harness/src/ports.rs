//! TCP ports that no other program takes by accident.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};

use uuid::Uuid;

/// Returns a port that was free a moment ago.
///
/// Another process can still take the port before the caller does: the caller must be ready to ask again.
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

/// The range ends below the ports that the kernel gives to outgoing connections. In the kernel's range any client could
/// take the port of a server that is down, and a client that dials such a dead port can even be connected to itself.
/// The range also leaves room for a cluster bus at + 10,000.
const FIRST: u16 = 10_000;
const COUNT: u16 = 12_000;
const TRIES: usize = 100;
