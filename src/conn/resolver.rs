//! Resolves host names in a thread, because the system call has no time-out.

use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;

use super::single_flight::SingleFlight;
use super::trouble::NoConnection;
use crate::time::Instant;

/// Resolves a host name; may block without limit.
type LookUp = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Resolves one host name, in one thread for all callers.
pub(super) struct Resolver {
    look_up: Arc<LookUp>,
    look_ups: SingleFlight<Answer>,
}

/// The result of a look-up. A system error cannot be cloned, so its kind and text are stored.
type Answer = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

impl Resolver {
    pub(super) fn of_the_system() -> Self {
        Self::new(|host, port| (host, port).to_socket_addrs().map(Iterator::collect))
    }

    pub(super) fn new(look_up: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self { look_up: Arc::new(look_up), look_ups: SingleFlight::new("lockson-dial") }
    }

    /// Returns the addresses of a host, at least one, by `deadline`.
    pub(super) fn addresses(&self, host: &str, port: u16, deadline: Instant) -> Result<Vec<SocketAddr>, NoConnection> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let limit = Instant::now().until(deadline);
        let (look_up, host) = (Arc::clone(&self.look_up), host.to_owned());
        let look_up = move |_| look_up(&host, port).map_err(|error| (error.kind(), error.to_string()));
        match self.look_ups.ask(0, deadline, look_up) {
            Ok((_, Ok(addresses))) if addresses.is_empty() => Err(not_resolved(io::ErrorKind::NotFound, "no address")),
            Ok((_, Ok(addresses))) => Ok(addresses),
            Ok((_, Err((kind, text)))) => Err(not_resolved(kind, &text)),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => Err(NoConnection::NotResolvedInTime(limit)),
            Err(error) => Err(NoConnection::Failed(error)),
        }
    }
}

fn not_resolved(kind: io::ErrorKind, text: &str) -> NoConnection {
    NoConnection::NotResolved(io::Error::new(kind, text))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn resolved(resolver: &Resolver, host: &str) -> Result<Vec<SocketAddr>, NoConnection> {
        resolver.addresses(host, 7, Instant::now().after(Duration::from_secs(10)))
    }

    #[test]
    fn an_answer_of_the_system_is_told() {
        let one = SocketAddr::from(([127, 0, 0, 1], 7));
        assert_eq!(resolved(&Resolver::new(move |_, _| Ok(vec![one])), "h").unwrap(), [one]);
        let nothing = Resolver::new(|_, _| Ok(vec![]));
        assert!(matches!(resolved(&nothing, "h"), Err(NoConnection::NotResolved(_))));
        let failing = Resolver::new(|_, _| Err(io::ErrorKind::NotFound.into()));
        assert!(matches!(resolved(&failing, "h"), Err(NoConnection::NotResolved(_))));
        let hanging = Resolver::new(|_, _| {
            loop {
                std::thread::park();
            }
        });
        let told = hanging.addresses("h", 7, Instant::now());
        assert!(matches!(told, Err(NoConnection::NotResolvedInTime(_))));
    }

    #[test]
    fn an_address_needs_no_look_up() {
        let resolver = Resolver::new(|_, _| Err(io::ErrorKind::NotFound.into()));
        assert_eq!(resolved(&resolver, "::1").unwrap(), ["[::1]:7".parse().unwrap()]);
    }
}
