//! Lets a thread sleep on a connection, and lets other threads wake it.

use std::io::{self, Read};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec};

use super::connection::Connection;
use super::stream::quietly;
use crate::system::{poll, send};
use crate::time::Instant;

/// Wakes a sleeping thread, from any thread.
#[derive(Clone, Debug)]
pub(crate) struct Waker(Arc<UnixStream>);

/// The end of the pipe on which the thread sleeps.
pub(crate) struct Sleeper(UnixStream);

/// Makes a sleeper and its waker.
pub(crate) fn sleeper() -> io::Result<(Waker, Sleeper)> {
    let (ours, theirs) = UnixStream::pair()?;
    ours.set_nonblocking(true)?;
    theirs.set_nonblocking(true)?;
    Ok((Waker(Arc::new(ours)), Sleeper(theirs)))
}

impl Waker {
    pub(crate) fn wake(&self) {
        // A full pipe means that the thread is awake, a closed pipe that the thread ended.
        let _ = send(&*self.0, &[0], quietly());
    }
}

impl Sleeper {
    /// Sleeps until the connection is readable (then `true`), the waker was used, or `until`.
    pub(super) fn sleep(&self, connection: Option<&Connection>, until: Instant) -> bool {
        let timeout = Timespec::try_from(Instant::now().until(until)).ok();
        let stream = connection.map(|connection| connection.stream().as_fd());
        let mut fds = vec![PollFd::from_borrowed_fd(self.0.as_fd(), PollFlags::IN)];
        fds.extend(stream.map(|stream| PollFd::from_borrowed_fd(stream, PollFlags::IN)));
        if poll(&mut fds, timeout.as_ref()).is_err() {
            // A signal interrupted the call; the caller checks again.
            return false;
        }
        if !fds[0].revents().is_empty() {
            self.was_woken();
        }
        fds.get(1).is_some_and(|fd| !fd.revents().is_empty())
    }

    /// Resets the waker. Returns whether the waker was used.
    pub(crate) fn was_woken(&self) -> bool {
        // The number of bytes does not matter.
        (&self.0).read(&mut [0; 64]).is_ok()
    }
}
