//! TCP ports that no other program takes by accident.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, UdpSocket};

use uuid::Uuid;

#[cfg(test)]
use {crate::eventually, std::time::Duration};

/// A TCP port that stays with its owner while the server on the port is down: the owner also has the UDP port of that
/// number, and without the UDP port no other user of this module takes the TCP port.
#[derive(Debug)]
pub(crate) struct Port {
    pub(crate) number: u16,
    _reservation: UdpSocket,
}

impl Port {
    /// Reserves a port that was free a moment ago.
    ///
    /// A program without reservations can still take the port: the caller must be ready to ask again.
    pub(crate) fn free() -> Port {
        Port::listen().0
    }

    /// Reserves a port, and binds a listener to the port.
    pub(crate) fn listen() -> (Port, TcpListener) {
        for _ in 0..TRIES {
            let number = candidate();
            let Ok(reservation) = UdpSocket::bind(address(number)) else { continue };
            let port = Port { number, _reservation: reservation };
            if let Ok(listener) = port.listen_again() {
                return (port, listener);
            }
        }
        panic!("{TRIES} random ports from {FIRST} on were all taken");
    }

    /// Binds a listener to the port.
    pub(crate) fn listen_again(&self) -> std::io::Result<TcpListener> {
        TcpListener::bind(address(self.number))
    }
}

fn address(port: u16) -> SocketAddr {
    SocketAddr::from((Ipv4Addr::LOCALHOST, port))
}

fn candidate() -> u16 {
    let [high, low, ..] = *Uuid::new_v4().as_bytes();
    FIRST + u16::from_be_bytes([high, low]) % COUNT
}

/// The range ends below the ports that the kernel gives to outgoing connections. In the kernel's range any client could
/// take the port of a server that is down, and a client that dials such a dead port can even be connected to itself.
/// The buses of clusters are at + 10,000, above this range and below the kernel's range.
const FIRST: u16 = 10_000;
const COUNT: u16 = 10_000;
const TRIES: usize = 100;

#[test]
fn a_port_stays_reserved_while_nobody_listens() {
    let (port, listener) = Port::listen();
    drop(listener);
    assert!(UdpSocket::bind(address(port.number)).is_err(), "another would take the port");
    // A process that another test starts has the closed listener, too, until it runs its own program.
    eventually(Duration::from_secs(10), "the port is free for its owner", || port.listen_again().is_ok());
}
