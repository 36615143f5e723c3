//! A server for tests, in this process: answers the introduction like Redis and all other requests by a script.
#![cfg(test)]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use super::address::{Address, Endpoint};
use super::{Dialer, PubSubChoice, Server, Target};
use crate::error::Result;
use crate::sync::Mutex;
use crate::transport::ServerNumber;

/// A request as the server received it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// The id of the connection in `CLIENT INFO`.
    pub(crate) connection: u64,
    pub(crate) words: Vec<String>,
}

/// The reaction of the server to a request.
#[derive(Clone, Debug)]
pub(crate) enum Reaction {
    Reply(&'static str),
    /// Replies with the last word of the request.
    Echo,
    /// Sends no reply and reads nothing more on this connection.
    Mute,
    /// Sends no reply and reads nothing more, so that the buffers between client and server fill.
    Deaf,
    /// Sends a reply that never ends, byte by byte.
    Trickle,
    /// Closes the connection.
    HangUp,
}

/// A server that runs until the process ends.
#[derive(Debug)]
pub(crate) struct Scripted {
    port: u16,
    /// The address of the server in `CLIENT INFO`.
    label: Arc<Mutex<String>>,
    seen: Arc<Mutex<Vec<Seen>>>,
}

impl Server {
    /// A server with one connection.
    pub(crate) fn for_test(url: &str) -> Self {
        Self::numbered_for_test(ServerNumber::default(), url)
    }

    /// A server of a client that makes this choice.
    pub(crate) fn choosing_for_test(url: &str, pub_sub: PubSubChoice) -> Self {
        let Self { dialer, .. } = Self::for_test(url);
        Self::new(Dialer { pub_sub: Arc::new(pub_sub), ..dialer }, 1)
    }

    pub(crate) fn numbered_for_test(number: ServerNumber, url: &str) -> Self {
        let address = Address::parse(url).expect("a test writes a good URL");
        Self::new(Dialer { number, ..Dialer::new(address, None, "test".into()) }, 1)
    }
}

impl Address {
    /// Parses the URL of a single server.
    pub(crate) fn parse(url: &str) -> Result<Self> {
        match Target::parse(url)? {
            Target::Fixed(address) => Ok(address),
            other => panic!("not the URL of a single server: {other:?}"),
        }
    }
}

/// The port of a server.
pub(crate) fn port_of(server: &Server) -> u16 {
    let Endpoint::Tcp(_, port) = server.dialer.address.endpoint else { panic!("a Unix socket") };
    port
}

type Script = dyn Fn(&Seen) -> Reaction + Send + Sync;

impl Scripted {
    /// Starts the server on a free port. `script` answers every request except those of an introduction.
    pub(crate) fn start(script: impl Fn(&Seen) -> Reaction + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (seen, script): (Arc<Mutex<Vec<Seen>>>, Arc<Script>) = (Arc::default(), Arc::new(script));
        let label = Arc::new(Mutex::new(format!("127.0.0.1:{port}")));
        let (in_thread, label_in_thread) = (Arc::clone(&seen), Arc::clone(&label));
        let next = AtomicU64::new(1);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (seen, script, label) = (Arc::clone(&in_thread), Arc::clone(&script), Arc::clone(&label_in_thread));
                let id = next.fetch_add(1, Ordering::Relaxed);
                thread::spawn(move || {
                    let label = label.lock().clone();
                    serve(stream.unwrap(), id, &label, &seen, &*script);
                });
            }
        });
        Self { port, label, seen }
    }

    pub(crate) fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Pretends that later connections reach another server.
    pub(crate) fn becomes(&self, label: &str) {
        *self.label.lock() = label.to_owned();
    }

    /// Returns the requests so far, without introductions.
    pub(crate) fn seen(&self) -> Vec<Seen> {
        self.seen.lock().clone()
    }
}

fn serve(mut stream: TcpStream, id: u64, label: &str, seen: &Mutex<Vec<Seen>>, script: &Script) {
    stream.set_nodelay(true).unwrap();
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let peer = stream.peer_addr().unwrap();
    while let Some(words) = request(&mut reader) {
        let introduction = match words.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["HELLO", ..] => Some("-ERR unknown command 'HELLO'\r\n".to_owned()),
            ["CLIENT", "SETNAME", _] => Some("+OK\r\n".to_owned()),
            ["CLIENT", "INFO"] => {
                let info = format!("id={id} addr={peer} laddr={label} fd=8 name=");
                Some(format!("${}\r\n{info}\r\n", info.len()))
            }
            _ => None,
        };
        let reply = match introduction {
            Some(reply) => reply,
            None => {
                let asked = Seen { connection: id, words };
                seen.lock().push(asked.clone());
                match script(&asked) {
                    Reaction::Reply(reply) => reply.to_owned(),
                    Reaction::Echo => {
                        let word = asked.words.last().map_or("", String::as_str);
                        format!("${}\r\n{word}\r\n", word.len())
                    }
                    Reaction::Mute => {
                        // Blocks until the client closes the connection.
                        let _ = reader.read_to_end(&mut vec![]);
                        return;
                    }
                    Reaction::Deaf => loop {
                        thread::park();
                    },
                    Reaction::Trickle => {
                        while stream.write_all(b"+").is_ok() {
                            thread::sleep(Duration::from_millis(5));
                        }
                        return;
                    }
                    Reaction::HangUp => return,
                }
            }
        };
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

/// The words of the next request; `None` at the end of the connection.
fn request(reader: &mut impl BufRead) -> Option<Vec<String>> {
    let count = header(reader, '*')?;
    (0..count)
        .map(|_| {
            let mut text = vec![0; header(reader, '$')? + 2];
            reader.read_exact(&mut text).ok()?;
            text.truncate(text.len() - 2);
            Some(String::from_utf8_lossy(&text).into_owned())
        })
        .collect()
}

fn header(reader: &mut impl BufRead, marker: char) -> Option<usize> {
    let mut line = String::new();
    reader.read_line(&mut line).ok()?;
    line.strip_prefix(marker)?.trim().parse().ok()
}
