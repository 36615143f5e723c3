//! Resolves host names in a thread, because the system call has no time-out.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use super::trouble::NoConnection;
use crate::sync::{Condvar, Mutex};
use crate::time::Instant;

/// Resolves a host name; may block without limit.
type LookUp = dyn Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync;

/// Resolves one host name. A look-up that outlives its caller goes on in its thread and serves later callers, so a
/// resolver that hangs blocks one thread instead of one thread for each caller.
pub(super) struct Resolver {
    look_up: Arc<LookUp>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    done: Condvar,
}

#[derive(Default)]
struct State {
    /// The number of look-ups that were started.
    begun: u64,
    /// The start of the look-up in progress.
    under_way: Option<Instant>,
    /// The number and the result of the last finished look-up.
    answer: Option<(u64, Answer)>,
}

/// The result of a look-up. A system error cannot be cloned, so its kind and text are stored.
type Answer = Result<Vec<SocketAddr>, (io::ErrorKind, String)>;

impl Resolver {
    pub(super) fn of_the_system() -> Self {
        Self::new(|host, port| (host, port).to_socket_addrs().map(Iterator::collect))
    }

    fn new(look_up: impl Fn(&str, u16) -> io::Result<Vec<SocketAddr>> + Send + Sync + 'static) -> Self {
        Self { look_up: Arc::new(look_up), shared: Arc::default() }
    }

    /// Returns the addresses of a host, at least one, by `deadline`.
    pub(super) fn addresses(&self, host: &str, port: u16, deadline: Instant) -> Result<Vec<SocketAddr>, NoConnection> {
        if let Ok(address) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, port)]);
        }
        let mut state = self.shared.state.lock();
        let now = Instant::now();
        if state.under_way.is_none_or(|begun| begun.after(HOPELESS) <= now) {
            self.begin(&mut state, now, host, port).map_err(NoConnection::Failed)?;
        }
        let ours = state.begun;
        loop {
            if let Some((_, answer)) = state.answer.as_ref().filter(|(number, _)| *number >= ours) {
                return match answer {
                    Ok(addresses) if addresses.is_empty() => Err(not_resolved(io::ErrorKind::NotFound, "no address")),
                    Ok(addresses) => Ok(addresses.clone()),
                    Err((kind, text)) => Err(not_resolved(*kind, text)),
                };
            }
            let left = Instant::now().until(deadline);
            if left.is_zero() {
                return Err(NoConnection::NotResolvedInTime);
            }
            self.shared.done.wait_for(&mut state, left);
        }
    }

    fn begin(&self, state: &mut State, now: Instant, host: &str, port: u16) -> io::Result<()> {
        let (look_up, shared, host) = (Arc::clone(&self.look_up), Arc::clone(&self.shared), host.to_owned());
        let number = state.begun + 1;
        thread::Builder::new().name("lockson-dial".into()).spawn(move || {
            let answer = look_up(&host, port).map_err(|error| (error.kind(), error.to_string()));
            let mut state = shared.state.lock();
            if state.begun == number {
                state.under_way = None;
            }
            if state.answer.as_ref().is_none_or(|(last, _)| *last < number) {
                state.answer = Some((number, answer));
            }
            shared.done.notify_all();
        })?;
        (state.begun, state.under_way) = (number, Some(now));
        Ok(())
    }
}

impl fmt::Debug for Resolver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Resolver(..)")
    }
}

fn not_resolved(kind: io::ErrorKind, text: &str) -> NoConnection {
    NoConnection::NotResolved(io::Error::new(kind, text))
}

/// After this time a look-up counts as stuck, and the next caller starts another one.
const HOPELESS: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use crossbeam_channel::{Receiver, Sender, unbounded};

    use super::*;

    const SOON: Duration = Duration::from_secs(10);

    /// A resolver whose answers the test sends, and the number of its look-ups.
    fn slow() -> (Arc<Resolver>, Sender<SocketAddr>, Arc<AtomicUsize>) {
        let (answer, answers): (_, Receiver<SocketAddr>) = unbounded();
        let asked = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&asked);
        let resolver = Resolver::new(move |_, _| {
            counted.fetch_add(1, Ordering::SeqCst);
            answers.recv().map(|address| vec![address]).map_err(io::Error::other)
        });
        (Arc::new(resolver), answer, asked)
    }

    fn within(resolver: &Resolver, limit: Duration) -> Result<Vec<SocketAddr>, NoConnection> {
        resolver.addresses("h", 1, Instant::now().after(limit))
    }

    #[test]
    fn a_resolver_that_hangs_is_asked_once_however_many_dial() {
        let (resolver, answer, asked) = slow();
        let dials: Vec<_> = (0..20)
            .map(|_| {
                let resolver = Arc::clone(&resolver);
                thread::spawn(move || within(&resolver, Duration::from_millis(50)))
            })
            .collect();
        for dial in dials {
            assert!(matches!(dial.join().unwrap(), Err(NoConnection::NotResolvedInTime)));
        }
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        // The next dial gets the answer of the first look-up, or of a later one if the first look-up ended before.
        let (one, other) = (SocketAddr::from(([127, 0, 0, 1], 1)), SocketAddr::from(([127, 0, 0, 2], 1)));
        answer.send(one).unwrap();
        answer.send(other).unwrap();
        let told = within(&resolver, SOON).unwrap();
        assert!(told == [one] || told == [other], "{told:?}");
        assert!(asked.load(Ordering::SeqCst) <= 2);
        drop(answer);
        // One of the answers may still be unused.
        assert!((0..2).any(|_| matches!(within(&resolver, SOON), Err(NoConnection::NotResolved(_)))));
    }

    #[test]
    fn a_look_up_without_end_is_left_for_another_one() {
        let (resolver, answer, _) = slow();
        let start = Instant::now();
        let pretence = start.pretend();
        // Without any time left the call starts the look-up and gives up.
        assert!(matches!(within(&resolver, Duration::ZERO), Err(NoConnection::NotResolvedInTime)));
        start.after(HOPELESS).comes();
        assert!(matches!(within(&resolver, Duration::ZERO), Err(NoConnection::NotResolvedInTime)));
        drop(pretence);
        let address = SocketAddr::from(([127, 0, 0, 1], 1));
        // One answer for each look-up, and one for a third look-up in case both ended before the call.
        (0..3).for_each(|_| answer.send(address).unwrap());
        assert_eq!(within(&resolver, SOON).unwrap(), [address]);
        assert!(resolver.shared.state.lock().begun >= 2);
    }

    #[test]
    fn an_address_needs_no_look_up() {
        let (resolver, _answer, asked) = slow();
        assert_eq!(resolver.addresses("::1", 7, Instant::now()).unwrap(), ["[::1]:7".parse().unwrap()]);
        assert_eq!(asked.load(Ordering::SeqCst), 0);
    }
}
