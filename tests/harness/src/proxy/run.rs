//! The only thread of the proxy, which sleeps on all sockets and on a waker.

use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::world::World;

/// The state shared by the tests and the thread.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) world: Mutex<World>,
    /// Signals the tests that the state may have changed.
    pub(super) changed: Condvar,
    waker: UnixStream,
    sleeper: UnixStream,
}

impl Shared {
    pub(super) fn new(world: World) -> Shared {
        let (waker, sleeper) = UnixStream::pair().expect("a pair of sockets can be made");
        for end in [&waker, &sleeper] {
            end.set_nonblocking(true).expect("a socket can be told not to block");
        }
        Shared { world: Mutex::new(world), changed: Condvar::new(), waker, sleeper }
    }

    /// Changes the world and waits until the thread has acted on the change.
    #[track_caller]
    pub(super) fn change<T>(&self, change: impl FnOnce(&mut World) -> T) -> T {
        let mut world = self.world.lock();
        let answer = change(&mut world);
        let round = world.rounds;
        drop(world);
        self.wake();
        self.wait(BOUND, &"the proxy itself", |world| (world.rounds > round).then_some(()));
        answer
    }

    /// Waits until a look at the world returns a value.
    #[track_caller]
    pub(super) fn wait<T>(
        &self,
        limit: Duration,
        what: &dyn Debug,
        mut look: impl FnMut(&mut World) -> Option<T>,
    ) -> T {
        let deadline = Instant::now() + limit;
        let mut world = self.world.lock();
        loop {
            if let Some(found) = look(&mut world) {
                return found;
            }
            let late = Instant::now() >= deadline;
            assert!(!late, "waited {limit:?} in vain for {what:?}");
            self.changed.wait_until(&mut world, deadline);
        }
    }

    /// Tells the thread to end.
    pub(super) fn stop(&self) {
        self.world.lock().stopping = true;
        self.wake();
    }

    fn wake(&self) {
        let _ = (&self.waker).write(&[0]); // if the pipe is full, the thread is awake already
    }

    /// Runs until the world is stopping.
    pub(super) fn run(&self) {
        let (mut watched, mut ready) = (vec![], vec![]);
        loop {
            let mut world = self.world.lock();
            for place in ready {
                match &watched[place] {
                    Watched::Listener(_) => world.accept_all(),
                    Watched::Client(index, ..) => world.read_client(*index),
                    Watched::Server(index, ..) => world.read_server(*index),
                }
            }
            if world.stopping {
                return;
            }
            // Bytes that were read are queued before a test can see the request, and mute the connection for example.
            world.rounds += 1;
            let next = world.advance();
            self.changed.notify_all();
            watched = watch(&world);
            drop(world);
            ready = self.sleep(&watched, next);
        }
    }

    /// Sleeps until an event, and returns the indices of the readable sockets.
    fn sleep(&self, watched: &[Watched], next: Option<Instant>) -> Vec<usize> {
        let mut descriptors = vec![PollFd::new(&self.sleeper, PollFlags::IN)];
        descriptors.extend(watched.iter().map(Watched::descriptor));
        let limit = next.map(|moment| timespec(moment.saturating_duration_since(Instant::now())));
        match poll(&mut descriptors, limit.as_ref()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => panic!("the proxy cannot sleep on its sockets: {error}"),
        }
        let ready = |descriptor: &PollFd<'_>| descriptor.revents().intersects(!PollFlags::OUT);
        let places = (0..watched.len()).filter(|place| ready(&descriptors[place + 1]));
        let places = places.collect();
        while let Ok(1..) = (&self.sleeper).read(&mut [0; 64]) {}
        places
    }
}

/// A socket that the thread sleeps on; shared, because a test may close the socket meanwhile.
enum Watched {
    Listener(Arc<TcpListener>),
    Client(usize, Arc<TcpStream>, PollFlags),
    Server(usize, Arc<TcpStream>, PollFlags),
}

impl Watched {
    fn descriptor(&self) -> PollFd<'_> {
        match self {
            Watched::Listener(listener) => PollFd::new(listener, PollFlags::IN),
            Watched::Client(_, stream, flags) | Watched::Server(_, stream, flags) => PollFd::new(stream, *flags),
        }
    }
}

fn watch(world: &World) -> Vec<Watched> {
    let flags = |full: bool| {
        if full { PollFlags::IN | PollFlags::OUT } else { PollFlags::IN }
    };
    let listener = world.watched_listener().cloned().map(Watched::Listener);
    let mut watched: Vec<Watched> = listener.into_iter().collect();
    for connection in world.connections.values() {
        if let Some(client) = connection.client.clone() {
            let flags = flags(connection.client_is_full);
            watched.push(Watched::Client(connection.index, client, flags));
        }
        if let Some(server) = connection.server.clone() {
            let flags = flags(connection.server_is_full);
            watched.push(Watched::Server(connection.index, server, flags));
        }
    }
    watched
}

fn timespec(time: Duration) -> Timespec {
    Timespec { tv_sec: time.as_secs() as _, tv_nsec: time.subsec_nanos() as _ }
}

/// How long a test waits for the thread, which only ever waits for the system.
const BOUND: Duration = Duration::from_secs(10);
