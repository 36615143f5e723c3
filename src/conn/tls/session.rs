//! The session of one connection by rustls.

use std::io::{self, ErrorKind, Read, Write};
use std::sync::Arc;

use rustls::ClientConnection;

use crate::conn::stream::{TimedStream, ended};
use crate::conn::tls::Session;
use crate::conn::trouble::Trouble;
use crate::time::Instant;
use crate::tls::Tls;

/// A session belongs to the thread that uses the connection; only the stream below is shared, to shut it down.
///
/// No session says goodbye (`close_notify`): replies of Redis say where they end, and a forked child that drops its
/// copy of a session would end the session of its parent.
pub(super) struct TlsSession {
    connection: ClientConnection,
    settings: Arc<Tls>,
    /// The number of decrypted bytes that were not read.
    decrypted: usize,
    /// What a write at once met, for the read that finds no more.
    broke: Option<io::Error>,
    /// The server ended the session.
    ended: bool,
}

impl TlsSession {
    pub(super) fn new(mut connection: ClientConnection, settings: Arc<Tls>) -> Self {
        // A request is sealed as a whole; requests have a limit of their own.
        connection.set_buffer_limit(None);
        Self { connection, settings, decrypted: 0, broke: None, ended: false }
    }

    /// Receives bytes from the stream by `when`, or at once, and opens the records that are whole. Returns whether any
    /// byte was there.
    fn receive(&mut self, stream: &mut TimedStream, when: Option<Instant>) -> io::Result<bool> {
        match self.connection.read_tls(&mut Wire { stream, when }) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        match self.connection.process_new_packets() {
            Ok(state) => {
                self.decrypted = state.plaintext_bytes_to_read();
                self.ended |= state.peer_has_closed();
                Ok(true)
            }
            Err(error) => {
                // The server is told why, if that can be done at once.
                let _ = self.connection.write_tls(&mut Wire { stream, when: None });
                Err(self.settings.trouble(&error))
            }
        }
    }

    /// Writes the sealed bytes by `when`, or what the system takes at once. Returns whether all were written.
    fn flush(&mut self, stream: &mut TimedStream, when: Option<Instant>) -> io::Result<bool> {
        while self.connection.wants_write() {
            match self.connection.write_tls(&mut Wire { stream, when }) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(self.last_words(stream).unwrap_or(error)),
            }
        }
        Ok(true)
    }

    /// Opens the records that are there, up to the first bytes of a reply.
    fn receive_messages(&mut self, stream: &mut TimedStream) -> io::Result<()> {
        for _ in 0..MOST_MESSAGES {
            if self.decrypted > 0 || self.ended || !self.receive(stream, None)? {
                return Ok(());
            }
        }
        Err(ended())
    }

    /// The reason that the server gave before it closed the connection.
    fn last_words(&mut self, stream: &mut TimedStream) -> Option<io::Error> {
        self.receive_messages(stream).err().filter(|error| Trouble::of(error).is_some())
    }
}

impl Session for TlsSession {
    fn shake_hands(&mut self, stream: &mut TimedStream, deadline: Instant) -> io::Result<()> {
        while self.connection.is_handshaking() {
            self.flush(stream, Some(deadline))?;
            if self.connection.is_handshaking() {
                self.receive(stream, Some(deadline))?;
            }
        }
        Ok(())
    }

    fn write_all(&mut self, stream: &mut TimedStream, bytes: &[u8], deadline: Instant) -> io::Result<()> {
        self.connection.writer().write_all(bytes)?;
        self.flush(stream, Some(deadline)).map(drop)
    }

    fn read(&mut self, stream: &mut TimedStream, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        while self.decrypted == 0 {
            if self.ended {
                return Err(self.broke.take().unwrap_or_else(ended));
            }
            self.receive(stream, deadline).map_err(|error| self.broke.take().unwrap_or(error))?;
            if deadline.is_none() {
                break;
            }
        }
        let read = self.connection.reader().read(buffer)?;
        self.decrypted -= read.min(self.decrypted);
        Ok(read)
    }

    fn write_now(&mut self, stream: &mut TimedStream, bytes: &[u8]) -> io::Result<()> {
        self.connection.writer().write_all(bytes)?;
        self.broke = self.flush(stream, None).err();
        Ok(())
    }

    fn has_sealed(&self) -> bool {
        self.connection.wants_write()
    }

    fn has_decrypted(&self) -> bool {
        self.decrypted > 0
    }

    fn is_stale(&mut self, stream: &mut TimedStream) -> bool {
        self.receive_messages(stream).is_err() || self.decrypted > 0 || self.ended
    }
}

/// The stream as TLS uses it: by a deadline, or at once.
struct Wire<'a> {
    stream: &'a mut TimedStream,
    when: Option<Instant>,
}

impl Read for Wire<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.stream.read(buffer, self.when)
    }
}

impl Write for Wire<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.stream.write(bytes, self.when)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// An idle connection has a few messages of TLS itself, not more.
const MOST_MESSAGES: usize = 16;

#[cfg(test)]
mod tests;
