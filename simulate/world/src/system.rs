//! What the library uses in place of the system: threads, sockets, clocks, random numbers.

use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex as SystemMutex;
use rustix::event::{PollFd, Timespec};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use rustix::time::ClockId;

use crate::{What, World};

/// Threads that run when the seed lets them.
pub mod thread {
    use std::cell::RefCell;
    use std::io;
    use std::sync::Arc;
    use std::time::Duration;

    use parking_lot::Mutex;
    pub use std::thread::{Scope, Thread, ThreadId, current, panicking};

    use crate::{What, World};

    thread_local! {
        /// The threads of each scope that is open in this thread.
        static SCOPES: RefCell<Vec<Vec<usize>>> = const { RefCell::new(vec![]) };
    }

    /// Starts threads, as that of the standard library does.
    #[derive(Debug, Default)]
    pub struct Builder(String);

    /// A thread whose end and outcome can be awaited.
    pub struct JoinHandle<T> {
        number: usize,
        outcome: Arc<Mutex<Option<T>>>,
    }

    /// The same for a thread of a scope.
    pub struct ScopedJoinHandle<'scope, T> {
        number: usize,
        inner: std::thread::ScopedJoinHandle<'scope, T>,
    }

    impl Builder {
        /// A thread without a name.
        pub fn new() -> Self {
            Self::default()
        }

        /// Names the thread.
        pub fn name(self, name: String) -> Self {
            Self(name)
        }

        /// Starts the thread.
        pub fn spawn<T: Send + 'static>(self, work: impl FnOnce() -> T + Send + 'static) -> io::Result<JoinHandle<T>> {
            let (world, me) = World::of_thread().expect("a thread of a world");
            let number = world.add(&self.0);
            let outcome: Arc<Mutex<Option<T>>> = Arc::default();
            let (of_thread, kept) = (Arc::clone(&world), Arc::clone(&outcome));
            let handle =
                std::thread::Builder::new().spawn(move || of_thread.live(number, || *kept.lock() = Some(work())))?;
            world.keep(number, handle);
            world.step(me);
            Ok(JoinHandle { number, outcome })
        }

        /// Starts the thread in a scope that this thread has opened last.
        pub fn spawn_scoped<'scope, T: Send + 'scope>(
            self,
            scope: &'scope Scope<'scope, '_>,
            work: impl FnOnce() -> T + Send + 'scope,
        ) -> io::Result<ScopedJoinHandle<'scope, T>> {
            let (world, me) = World::of_thread().expect("a thread of a world");
            let number = world.add(&self.0);
            SCOPES.with_borrow_mut(|scopes| scopes.last_mut().expect("an open scope").push(number));
            let of_thread = Arc::clone(&world);
            let inner = std::thread::Builder::new().spawn_scoped(scope, move || of_thread.live(number, work))?;
            world.step(me);
            Ok(ScopedJoinHandle { number, inner })
        }
    }

    impl<T> JoinHandle<T> {
        /// Waits for the end of the thread.
        pub fn join(self) -> T {
            join(self.number);
            self.outcome.lock().take().expect("the thread has ended")
        }
    }

    impl<T> ScopedJoinHandle<'_, T> {
        /// Waits for the end of the thread.
        #[allow(clippy::missing_errors_doc, reason = "as that of the standard library")]
        pub fn join(self) -> std::thread::Result<T> {
            join(self.number);
            self.inner.join()
        }
    }

    /// Opens a scope; ends when its threads have ended.
    pub fn scope<'env, T>(work: impl for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T) -> T {
        std::thread::scope(|scope| {
            SCOPES.with_borrow_mut(|scopes| scopes.push(vec![]));
            let outcome = work(scope);
            let threads = SCOPES.with_borrow_mut(Vec::pop).unwrap_or_default();
            threads.into_iter().for_each(join);
            outcome
        })
    }

    /// Starts a thread without a name.
    pub fn spawn<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        Builder::new().spawn(work).expect("a thread")
    }

    /// Sleeps.
    pub fn sleep(duration: Duration) {
        let (world, me) = World::of_thread().expect("a thread of a world");
        world.wait(me, What::Time, Some(duration));
    }

    fn join(number: usize) {
        let (world, me) = World::of_thread().expect("a thread of a world");
        world.wait(me, What::Thread(number), None);
    }
}

/// Channels whose receivers wait in the world.
pub mod mpsc {
    use std::collections::VecDeque;
    use std::sync::Arc;
    pub use std::sync::mpsc::RecvTimeoutError;
    use std::time::Duration;

    use crate::{Condvar, Mutex, World};

    #[derive(Debug)]
    struct Channel<T> {
        queue: Mutex<VecDeque<T>>,
        sent: Condvar,
    }

    /// The end that sends.
    #[derive(Debug)]
    pub struct Sender<T>(Arc<Channel<T>>);

    /// The end that receives.
    #[derive(Debug)]
    pub struct Receiver<T>(Arc<Channel<T>>);

    /// Makes a channel without bound.
    pub fn channel<T>() -> (Sender<T>, Receiver<T>) {
        let channel = Arc::new(Channel { queue: Mutex::default(), sent: Condvar::new() });
        (Sender(Arc::clone(&channel)), Receiver(channel))
    }

    impl<T> Clone for Sender<T> {
        fn clone(&self) -> Self {
            Self(Arc::clone(&self.0))
        }
    }

    impl<T> Sender<T> {
        /// Sends a value, which nobody may receive.
        #[allow(clippy::missing_errors_doc, reason = "as that of the standard library")]
        pub fn send(&self, value: T) -> Result<(), T> {
            self.0.queue.lock().push_back(value);
            self.0.sent.notify_one();
            Ok(())
        }
    }

    impl<T> Receiver<T> {
        /// Waits for a value. That all senders are gone is not noticed.
        #[allow(clippy::missing_errors_doc, reason = "as that of the standard library")]
        pub fn recv_timeout(&self, longest: Duration) -> Result<T, RecvTimeoutError> {
            let (world, _) = World::of_thread().expect("a thread of a world");
            let end = world.now().saturating_add(crate::nanos(longest));
            let mut queue = self.0.queue.lock();
            loop {
                let now = world.now();
                match queue.pop_front() {
                    Some(value) => return Ok(value),
                    None if now >= end => return Err(RecvTimeoutError::Timeout),
                    None => queue = self.0.sent.wait_for(queue, Duration::from_nanos(end - now)),
                }
            }
        }
    }
}

/// The options of sockets.
pub mod sockopt {
    use std::os::fd::AsFd;
    use std::time::Duration;

    pub use rustix::net::sockopt::{Timeout, set_socket_keepalive};

    /// How long a thread waits for a socket.
    #[allow(clippy::missing_errors_doc, reason = "as that of rustix")]
    pub fn set_socket_timeout(socket: impl AsFd, which: Timeout, limit: Option<Duration>) -> rustix::io::Result<()> {
        if which == Timeout::Recv {
            super::edit(&socket, |socket| socket.limit = limit);
        }
        Ok(())
    }

    /// Does nothing: no gateway forgets a connection of a world.
    #[allow(clippy::missing_errors_doc, reason = "as that of rustix")]
    pub fn set_tcp_keepidle(_: impl AsFd, _: Duration) -> rustix::io::Result<()> {
        Ok(())
    }
}

/// A connection to a port of the world.
#[derive(Debug)]
pub struct TcpStream(UnixStream);

/// What is known of a client's end.
#[derive(Clone, Copy, Debug, Default)]
struct Socket {
    connection: Option<u64>,
    limit: Option<Duration>,
}

static SOCKETS: SystemMutex<BTreeMap<i32, Socket>> = SystemMutex::new(BTreeMap::new());

fn edit<T>(socket: &impl AsFd, edit: impl FnOnce(&mut Socket) -> T) -> T {
    edit(SOCKETS.lock().entry(socket.as_fd().as_raw_fd()).or_default())
}

fn known(socket: &impl AsFd) -> Socket {
    SOCKETS.lock().get(&socket.as_fd().as_raw_fd()).copied().unwrap_or_default()
}

impl TcpStream {
    /// Connects to the port, whatever the address.
    #[allow(clippy::missing_errors_doc, reason = "as that of the standard library")]
    pub fn connect_timeout(address: &SocketAddr, limit: Duration) -> io::Result<Self> {
        let (world, me) = World::of_thread().expect("a thread of a world");
        world.wait(me, What::Time, Some(TO_CONNECT.min(limit)));
        let (stream, connection) = world.network().connect(&world, address.port())?;
        stream.set_nonblocking(true)?;
        edit(&stream, |socket| *socket = Socket { connection: Some(connection), limit: None });
        Ok(Self(stream))
    }

    /// Does nothing: no byte waits for others.
    #[allow(clippy::missing_errors_doc, reason = "as that of the standard library")]
    pub fn set_nodelay(&self, _: bool) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for TcpStream {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl From<TcpStream> for OwnedFd {
    fn from(stream: TcpStream) -> Self {
        stream.0.into()
    }
}

/// Writes to a waker's socket, or hands the bytes to the network, which is faster than another socket.
#[allow(clippy::missing_errors_doc, reason = "as that of rustix")]
pub fn send(socket: impl AsFd, bytes: &[u8], flags: SendFlags) -> rustix::io::Result<usize> {
    let Some((world, me)) = World::of_thread() else { return rustix::net::send(socket, bytes, flags) };
    world.step(me);
    // The number of a waker's socket may have been that of a connection.
    if bytes == [0] {
        let sent = rustix::net::send(&socket, bytes, flags | SendFlags::DONTWAIT)?;
        world.waker_used();
        return Ok(sent);
    }
    let is_open = |connection| world.network().send(&world, connection, bytes);
    if known(&socket).connection.is_some_and(is_open) { Ok(bytes.len()) } else { Err(Errno::PIPE) }
}

/// Reads what is there, or waits for bytes.
#[allow(clippy::missing_errors_doc, reason = "as that of rustix")]
pub fn recv(socket: impl AsFd, buffer: &mut [u8], flags: RecvFlags) -> rustix::io::Result<((), usize)> {
    let (world, me) = World::of_thread().expect("a thread of a world");
    let end = known(&socket).limit.map(|limit| world.now().saturating_add(crate::nanos(limit)));
    loop {
        match rustix::net::recv(&socket, &mut *buffer, flags | RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN) if !flags.contains(RecvFlags::DONTWAIT) && end.is_none_or(|end| world.now() < end) => {
                wait_for_sockets(&world, me, &[&socket], end);
            }
            outcome => return outcome.map(|(_, length)| ((), length)),
        }
    }
}

/// Waits until one of the sockets is ready.
#[allow(clippy::missing_errors_doc, reason = "as that of rustix")]
pub fn poll(fds: &mut [PollFd<'_>], longest: Option<&Timespec>) -> rustix::io::Result<usize> {
    let (world, me) = World::of_thread().expect("a thread of a world");
    let longest = longest.map(|longest| {
        let [seconds, nanos] = [longest.tv_sec, longest.tv_nsec].map(|part| u64::try_from(part).unwrap_or(0));
        seconds.saturating_mul(1_000_000_000).saturating_add(nanos)
    });
    let end = longest.map(|longest| world.now().saturating_add(longest));
    loop {
        let ready = rustix::event::poll(fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        if ready > 0 || end.is_some_and(|end| world.now() >= end) {
            return Ok(ready);
        }
        let sockets: Vec<&PollFd<'_>> = fds.iter().collect();
        wait_for_sockets(&world, me, &sockets, end);
    }
}

fn wait_for_sockets(world: &std::sync::Arc<World>, me: usize, sockets: &[&impl AsFd], end: Option<u64>) {
    let longest = end.map(|end| Duration::from_nanos(end.saturating_sub(world.now())));
    let connections = sockets.iter().filter_map(|socket| known(socket).connection).collect();
    world.wait_for_bytes(me, connections, longest);
}

/// Ends all operations on a socket.
#[allow(clippy::missing_errors_doc, reason = "as that of rustix")]
pub fn shutdown(socket: impl AsFd, how: rustix::net::Shutdown) -> rustix::io::Result<()> {
    let outcome = rustix::net::shutdown(&socket, how);
    let connection = edit(&socket, |socket| socket.connection.take());
    if let Some((world, _)) = World::of_thread()
        && let Some(connection) = connection
    {
        world.moved(connection);
    }
    outcome
}

/// The time of the world; the one of day began in the year 2026.
pub fn clock_gettime(clock: ClockId) -> Timespec {
    let now = World::of_thread().map_or(0, |(world, _)| world.look_at_clock());
    let began = if clock == ClockId::Realtime { BEGAN } else { 1_000 };
    let [tv_sec, tv_nsec] = [now / 1_000_000_000, now % 1_000_000_000].map(|part| i64::try_from(part).unwrap_or(0));
    Timespec { tv_sec: began + tv_sec, tv_nsec }
}

/// Tables whose order depends on nothing else.
pub type HashMap<Key, Value> = std::collections::HashMap<Key, Value, BuildHasherDefault<DefaultHasher>>;
/// Sets whose order depends on nothing else.
pub type HashSet<Key> = std::collections::HashSet<Key, BuildHasherDefault<DefaultHasher>>;

/// A number drawn by the seed.
pub fn random() -> u64 {
    World::of_thread().map_or(0, |(world, _)| world.below(u64::from(u32::MAX)))
}

/// An id drawn by the seed.
pub fn new_uuid() -> uuid::Uuid {
    let half = || u128::from(random());
    uuid::Builder::from_u128(half() << 96 | half() << 64 | half() << 32 | half())
        .with_version(uuid::Version::Random)
        .with_variant(uuid::Variant::RFC4122)
        .into_uuid()
}

/// The mistake that is planted in the library, if any: [`plant`] sets it.
static PLANTED: AtomicUsize = AtomicUsize::new(usize::MAX);

/// Plants a mistake in the library, by its number.
pub fn plant(number: usize) {
    PLANTED.store(number, Ordering::Relaxed);
}

/// Whether this mistake is planted. Sources with mistakes ask.
pub fn is_planted(number: usize) -> bool {
    PLANTED.load(Ordering::Relaxed) == number
}

/// Seconds from 1970 to the beginning of a world.
pub const BEGAN: i64 = 1_780_000_000;
const TO_CONNECT: Duration = Duration::from_micros(300);
