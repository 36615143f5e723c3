//! A slow link to a server: all bytes are late, those of a handshake among them.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::channel;

use crate::support::prelude::*;

/// Passes bytes on to one server, late.
pub(super) struct SlowLink {
    pub(super) port: u16,
    state: Arc<State>,
}

struct State {
    is_silent: AtomicBool,
    /// The sockets of all connections; `None` while the link is cut.
    sockets: Mutex<Option<Vec<TcpStream>>>,
}

impl SlowLink {
    pub(super) fn to(server: SocketAddr, round_trip: Duration) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(State { is_silent: AtomicBool::new(false), sockets: Mutex::new(Some(vec![])) });
        let link = Self { port, state: Arc::clone(&state) };
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Some(sockets) = &mut *state.sockets.lock() else { continue };
                let Ok(server) = TcpStream::connect(server) else { continue };
                // This machine accepts at once, and a far one after a round trip.
                let connected = Instant::now() + round_trip;
                for (from, to) in [(&client, &server), (&server, &client)] {
                    let (from, to) = (from.try_clone().unwrap(), to.try_clone().unwrap());
                    carry(from, to, connected, round_trip / 2, Arc::clone(&state));
                }
                sockets.extend([client, server]);
            }
        });
        link
    }

    /// Carries nothing from now on, and tells nobody.
    pub(super) fn hang(&self) {
        self.state.is_silent.store(true, Ordering::SeqCst);
    }

    /// Ends all connections, and each new one at once.
    pub(super) fn cut(&self) {
        let sockets = self.state.sockets.lock().take();
        sockets.into_iter().flatten().for_each(|socket| drop(socket.shutdown(Shutdown::Both)));
    }

    pub(super) fn mend(&self) {
        *self.state.sockets.lock() = Some(vec![]);
    }
}

/// Carries bytes one way, each `late` by as much.
fn carry(mut from: TcpStream, mut to: TcpStream, connected: Instant, late: Duration, state: Arc<State>) {
    to.set_nodelay(true).unwrap();
    let (put, on_the_way) = channel::<(Instant, Vec<u8>)>();
    thread::spawn(move || {
        let mut bytes = vec![0; 65_536];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let arrives = Instant::now().max(connected) + late;
            if !state.is_silent.load(Ordering::SeqCst) && put.send((arrives, bytes[..count].to_vec())).is_err() {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (arrives, bytes) in on_the_way {
            thread::sleep(arrives.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}
