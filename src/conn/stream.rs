//! A stream to a server, on which every operation has a deadline.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketType};

use crate::owner::Home;
use crate::sync::{Mutex, remember};
use crate::system::sockopt::{self, Timeout, set_socket_timeout};
use crate::system::{TcpStream, poll, recv, send, shutdown};
use crate::time::Instant;

/// A connected stream. Other threads may share it, to shut it down.
pub(super) type Stream = OwnedFd;

/// A stream and its time-outs.
pub(crate) struct TimedStream {
    /// The stream, for polling and for shutdown.
    pub(super) stream: Arc<Stream>,
    /// The time-outs that are set on the stream; setting one costs a system call.
    read_timeout: Option<Duration>,
    write_timeout: Option<Duration>,
    /// The time that was left for the last write with a deadline.
    pub(super) limit: Duration,
}

impl TimedStream {
    pub(super) fn new(stream: impl Into<OwnedFd>) -> Self {
        Self { stream: Arc::new(stream.into()), read_timeout: None, write_timeout: None, limit: Duration::ZERO }
    }

    /// Writes a part of `bytes`, at least one byte, by `deadline`, or at once where there is none: then the error
    /// `WouldBlock` stands for no byte. Returns the number of bytes.
    pub(super) fn write(&mut self, bytes: &[u8], deadline: Option<Instant>) -> io::Result<usize> {
        loop {
            let left = deadline.map(left_until).transpose()?;
            if let Some(left) = left {
                self.limit = left;
                if needs_setting(self.write_timeout, left) {
                    set_socket_timeout(&self.stream, Timeout::Send, Some(left))?;
                    self.write_timeout = Some(left);
                }
            }
            let flags = if left.is_some() { SendFlags::empty() } else { SendFlags::DONTWAIT };
            match send(&self.stream, bytes, flags | quietly()) {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(written) => return Ok(written),
                Err(error) if is_early_wake(error, left) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Reads the available bytes, at least one, by `deadline`, or at once where there is none: then the error
    /// `WouldBlock` stands for no byte. Returns the number of bytes.
    pub(super) fn read(&mut self, buffer: &mut [u8], deadline: Option<Instant>) -> io::Result<usize> {
        loop {
            // After a stop of this process the bytes may be there although the deadline has passed.
            let left = deadline.and_then(|deadline| left_until(deadline).ok());
            if let Some(left) = left
                && needs_setting(self.read_timeout, left)
            {
                set_socket_timeout(&self.stream, Timeout::Recv, Some(left))?;
                self.read_timeout = Some(left);
            }
            let flags = if left.is_some() { RecvFlags::empty() } else { RecvFlags::DONTWAIT };
            match recv(&self.stream, &mut *buffer, flags) {
                Ok((_, 0)) => return Err(ended()),
                Ok((_, read)) => return Ok(read),
                Err(error) if is_early_wake(error, left) => {}
                Err(Errno::AGAIN) if deadline.is_some() => return Err(timed_out()),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Whether bytes are there, or the end.
    pub(super) fn is_readable(&self) -> bool {
        let mut fds = [PollFd::from_borrowed_fd(self.stream.as_fd(), PollFlags::IN)];
        let at_once = Timespec { tv_sec: 0, tv_nsec: 0 };
        !matches!(poll(&mut fds, Some(&at_once)), Ok(0))
    }

    /// The address of the server; `None` for a Unix socket.
    pub(super) fn peer(&self) -> Option<SocketAddr> {
        rustix::net::getpeername(&self.stream).ok()??.try_into().ok()
    }
}

/// The streams to one server, also those in use, so that any thread can end them.
#[derive(Default)]
pub(super) struct Streams {
    /// The process that opened them: a forked child shares the sockets and must not use them.
    home: Home,
    state: Mutex<StreamsState>,
}

#[derive(Default)]
struct StreamsState {
    open: Vec<Weak<Stream>>,
    closed: bool,
}

impl Streams {
    /// Records a stream. A stream that opens after the end is shut down.
    pub(super) fn opened(&self, stream: &Arc<Stream>) {
        let mut state = self.state.lock();
        remember(&mut state.open, stream);
        if state.closed {
            drop(state);
            self.shut_down();
        }
    }

    pub(super) fn are_closed(&self) -> bool {
        self.home.is_elsewhere() || self.state.lock().closed
    }

    /// Ends every operation under way, and those to come.
    pub(super) fn close(&self) {
        self.state.lock().closed = true;
        self.shut_down();
    }

    /// Ends every operation under way.
    pub(super) fn shut_down(&self) {
        // An error means that the stream is shut down already.
        let open = std::mem::take(&mut self.state.lock().open);
        for stream in open.iter().filter_map(Weak::upgrade) {
            let _ = shutdown(&stream, Shutdown::Both);
        }
    }
}

/// Connects to the first address that accepts the connection. Each address gets an equal share of the time left.
pub(super) fn dial_first(addresses: &[SocketAddr], deadline: Instant) -> io::Result<TcpStream> {
    let mut last = io::Error::new(ErrorKind::NotFound, "the host name has no address");
    for (index, address) in addresses.iter().enumerate() {
        let others = u32::try_from(addresses.len() - index).unwrap_or(1);
        match TcpStream::connect_timeout(address, (left_until(deadline)? / others).max(SHORTEST)) {
            Ok(stream) => {
                stream.set_nodelay(true)?;
                // Keepalive keeps an idle connection alive in gateways, and detects a dead server.
                sockopt::set_socket_keepalive(&stream, true)?;
                sockopt::set_tcp_keepidle(&stream, KEEP_ALIVE)?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Connects to a Unix socket. If the backlog of the server is full, the call blocks for the send time-out of the
/// socket.
pub(super) fn dial_unix(path: &Path, deadline: Instant) -> io::Result<OwnedFd> {
    let address = SocketAddrUnix::new(path)?;
    loop {
        let socket = unix_socket()?;
        set_socket_timeout(&socket, Timeout::Send, Some(left_until(deadline)?))?;
        match rustix::net::connect(&socket, &address) {
            Ok(()) => return Ok(socket),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(not(target_vendor = "apple"))]
fn unix_socket() -> rustix::io::Result<OwnedFd> {
    let for_us_alone = rustix::net::SocketFlags::CLOEXEC;
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, for_us_alone, None)
}

#[cfg(target_vendor = "apple")]
fn unix_socket() -> rustix::io::Result<OwnedFd> {
    let socket = rustix::net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    Ok(socket)
}

pub(super) fn left_until(deadline: Instant) -> io::Result<Duration> {
    // Up to version 1.1.4, rustix rounds the last nanoseconds of a second up to a million microseconds, which is refused.
    let left = Instant::now().until(deadline);
    let left = Duration::new(left.as_secs(), left.subsec_micros() * 1_000);
    if left.is_zero() { Err(timed_out()) } else { Ok(left.max(SHORTEST)) }
}

/// The error of an operation whose deadline passed.
pub(super) fn timed_out() -> io::Error {
    io::Error::new(ErrorKind::TimedOut, "no answer in time")
}

/// The error of a connection that the server closed.
pub(super) fn ended() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")
}

/// The number of bytes that were moved at once, where the error of no byte is none.
pub(super) fn moved_at_once(moved: io::Result<usize>) -> io::Result<usize> {
    moved.or_else(|error| if error.kind() == ErrorKind::WouldBlock { Ok(0) } else { Err(error) })
}

/// A closed connection must be an error and not a signal; on Apple's systems the stream has an option for that.
pub(super) fn quietly() -> SendFlags {
    #[cfg(not(target_vendor = "apple"))]
    return SendFlags::NOSIGNAL;
    #[cfg(target_vendor = "apple")]
    return SendFlags::empty();
}

/// Whether the time-out must be set anew. A time-out that ends by the deadline is kept, unless it is so short that
/// the caller would wake many times.
fn needs_setting(in_force: Option<Duration>, left: Duration) -> bool {
    !matches!(in_force, Some(timeout) if timeout <= left + TOLERANCE && timeout >= left / 4)
}

/// Whether a call ended without a reason to end, when it had the time `left`, or none.
fn is_early_wake(error: Errno, left: Option<Duration>) -> bool {
    error == Errno::INTR || (left.is_some() && matches!(error, Errno::AGAIN | Errno::TIMEDOUT))
}

/// The system takes a time-out of zero as "without limit".
const SHORTEST: Duration = Duration::from_micros(100);
const KEEP_ALIVE: Duration = Duration::from_secs(60);
const TOLERANCE: Duration = Duration::from_millis(2);

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read, Write};
    use std::net::{IpAddr, Ipv4Addr, TcpListener};
    use std::os::unix::net::UnixListener;

    #[test]
    fn a_stream_that_opens_after_the_end_is_shut_down() {
        let (ours, mut theirs) = std::os::unix::net::UnixStream::pair().unwrap();
        theirs.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        let (streams, stream) = (Streams::default(), Arc::new(Stream::from(ours)));
        streams.close();
        streams.opened(&stream);
        assert_eq!(theirs.read(&mut [0]).unwrap(), 0, "nothing is sent to the server any more");
    }

    const CLOSED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 1);

    fn local(listener: &TcpListener) -> SocketAddr {
        listener.local_addr().unwrap()
    }

    #[test]
    fn the_next_address_is_dialled_when_one_refuses() {
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let deadline = Instant::now().after(Duration::from_secs(10));
        let stream = dial_first(&[CLOSED, local(&open)], deadline).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), local(&open));
    }

    #[test]
    fn an_address_that_does_not_answer_leaves_time_for_the_next() {
        let mute = TcpListener::bind("127.0.0.1:0").unwrap();
        // The backlog is full once a connection attempt fails, and the test accepts no connection.
        let mut queue = vec![];
        while let Ok(stream) = TcpStream::connect_timeout(&local(&mute), Duration::from_millis(200)) {
            queue.push(stream);
        }
        let open = TcpListener::bind("127.0.0.1:0").unwrap();
        let deadline = Instant::now().after(Duration::from_secs(4));
        let stream = dial_first(&[local(&mute), local(&open)], deadline).unwrap();
        assert_eq!(stream.peer_addr().unwrap(), local(&open));
        assert!(Instant::now() < deadline);
    }

    #[test]
    fn the_last_refusal_is_reported_when_every_address_refuses() {
        let deadline = Instant::now().after(Duration::from_secs(10));
        let error = dial_first(&[CLOSED, CLOSED], deadline).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::ConnectionRefused);
    }

    #[test]
    fn a_full_unix_socket_costs_the_deadline_and_no_thread() {
        let folder = std::env::temp_dir().join(format!("lockson-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("mute.sock");
        let mute = UnixListener::bind(&path).unwrap();
        let soon = || Instant::now().after(Duration::from_millis(500));
        let mut queue = vec![];
        let error = loop {
            match dial_unix(&path, soon()) {
                Ok(stream) => queue.push(stream),
                Err(error) => break error,
            }
        };
        assert!(matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut), "{error}");
        assert!(!queue.is_empty(), "{error}");
        mute.accept().unwrap();
        dial_unix(&path, Instant::now().after(Duration::from_secs(10))).unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(dial_unix(&path, soon()).unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn bytes_that_are_there_are_read_after_the_deadline() {
        let (stream, server) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut stream = TimedStream::new(stream);
        (&server).write_all(b"+OK").unwrap();
        let (mut buffer, passed) = ([0; 8], Some(Instant::now()));
        assert_eq!(stream.read(&mut buffer, passed).unwrap(), 3);
        assert_eq!(stream.read(&mut buffer, passed).unwrap_err().kind(), ErrorKind::TimedOut);
    }

    #[test]
    fn a_read_after_a_write_that_blocked_ends_by_its_deadline() {
        let (stream, server) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut stream = TimedStream::new(stream);
        let blocks = Duration::from_millis(300);
        let bytes = vec![0; 4 * 1024 * 1024];
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(blocks);
                let mut taken = vec![0; bytes.len()];
                std::io::Read::read_exact(&mut &server, &mut taken).unwrap();
            });
            let deadline = Instant::now().after(Duration::from_secs(2));
            let mut written = 0;
            while written < bytes.len() {
                written += stream.write(&bytes[written..], Some(deadline)).unwrap();
            }
        });
        let (begun, limit) = (Instant::now(), Duration::from_millis(100));
        assert_eq!(stream.read(&mut [0], Some(begun.after(limit))).unwrap_err().kind(), ErrorKind::TimedOut);
        assert!(begun.until(Instant::now()) < limit + blocks / 2, "the time of the write is over");
    }
}
