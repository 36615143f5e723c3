//! The bytes of one connection, with a deadline for every operation: plain, or sealed by TLS.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::address::Endpoint;
use super::resolver::Resolver;
use super::stream::{TimedStream, dial_first, dial_unix, moved_at_once};
use super::tls::Session;
use super::trouble::NoConnection;
use crate::time::Instant;

/// A connected stream, and the TLS session over the stream.
pub(super) struct Socket {
    pub(super) stream: TimedStream,
    session: Option<Box<dyn Session>>,
}

impl Socket {
    /// Connects by `deadline`. The server gets at most the time `longest`, if any, once its name is resolved.
    pub(super) fn dial(
        endpoint: &Endpoint,
        resolver: &Resolver,
        deadline: Instant,
        longest: Option<Duration>,
    ) -> Result<Self, NoConnection> {
        let stream = match endpoint {
            // The name is resolved for each connection, because the answer may have changed.
            Endpoint::Tcp(host, port) => {
                let addresses = resolver.addresses(host, *port, deadline)?;
                dial_first(&addresses, sooner(deadline, longest)).map(OwnedFd::from)
            }
            Endpoint::Unix(path) => dial_unix(path, sooner(deadline, longest)),
        };
        Ok(Self::over(stream.map_err(NoConnection::Failed)?))
    }

    pub(super) fn over(stream: OwnedFd) -> Self {
        Self { stream: TimedStream::new(stream), session: None }
    }

    /// Makes the handshake of TLS. From then on all bytes go through the session.
    pub(super) fn secure(&mut self, mut session: Box<dyn Session>, deadline: Instant) -> io::Result<()> {
        session.shake_hands(&mut self.stream, deadline)?;
        self.session = Some(session);
        Ok(())
    }

    /// Writes all of `bytes`. After an error the server did not receive all of them.
    pub(super) fn write_all(&mut self, mut bytes: &[u8], deadline: Instant) -> io::Result<()> {
        if let Some(session) = &mut self.session {
            return session.write_all(&mut self.stream, bytes, deadline);
        }
        while !bytes.is_empty() {
            let written = self.stream.write(bytes, Some(deadline))?;
            bytes = &bytes[written..];
        }
        Ok(())
    }

    /// Reads the available bytes: at least one by `deadline`, or those that are there, perhaps none, where there is no
    /// deadline. Returns the number of bytes.
    pub(super) fn read(&mut self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        moved_at_once(match &mut self.session {
            Some(session) => session.read(&mut self.stream, buffer, deadline),
            None => self.stream.read(buffer, deadline),
        })
    }

    /// Writes as many bytes as the system takes at once, perhaps none. Returns the number of bytes, at most those that
    /// the server may have received; the next call must begin with the byte after them.
    pub(super) fn write_now(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.session {
            Some(session) => session.write_now(&mut self.stream, bytes).map(|()| bytes.len()),
            None => moved_at_once(self.stream.write(bytes, None)),
        }
    }

    /// Whether bytes of [`Socket::write_now`] wait for its next call.
    pub(super) fn has_sealed(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_sealed())
    }

    /// Whether bytes were received that [`Socket::read`] has not returned: a poll of the stream does not see them.
    pub(super) fn has_decrypted(&self) -> bool {
        self.session.as_ref().is_some_and(|session| session.has_decrypted())
    }

    /// Whether an idle connection is unusable: closed, or with bytes that belong to no request.
    pub(super) fn is_stale(&mut self) -> bool {
        match &mut self.session {
            Some(session) => session.is_stale(&mut self.stream),
            None => self.stream.is_readable(),
        }
    }
}

/// The deadline, or the end of the time `longest` from now on, if that comes before.
pub(super) fn sooner(deadline: Instant, longest: Option<Duration>) -> Instant {
    longest.map_or(deadline, |longest| deadline.min(Instant::now().after(longest)))
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    #[test]
    fn a_slow_resolver_leaves_the_server_its_time() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let longest = Duration::from_millis(500);
        let resolver = Resolver::new(move |_, _| {
            thread::sleep(longest);
            Ok(vec![address])
        });
        let endpoint = Endpoint::Tcp("h".into(), 1);
        let deadline = Instant::now().after(Duration::from_secs(10));
        assert!(Socket::dial(&endpoint, &resolver, deadline, Some(longest)).is_ok());
    }
}
