//! A simple client that writes and reads bytes.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use lockson_harness::RedisServer;
use lockson_harness::proxy::Proxy;

/// The bound of everything that must happen.
pub(crate) const SOON: Duration = Duration::from_secs(10);

/// How long a test listens to be sure that nothing comes. A shorter time never fails a good proxy.
pub(crate) const SILENCE: Duration = Duration::from_millis(60);

pub(crate) const PONG: &str = "+PONG\r\n";

/// A connection that speaks in frames.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
}

impl Wire {
    pub(crate) fn open(address: SocketAddr) -> Wire {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.set_nodelay(true).unwrap();
        Wire { stream }
    }

    pub(crate) fn send(&mut self, words: &[&str]) {
        self.stream.write_all(&frame(words)).unwrap();
    }

    /// Reads as many bytes as expected and compares.
    #[track_caller]
    pub(crate) fn expect(&mut self, reply: &str) {
        let mut bytes = vec![0; reply.len()];
        if let Err(error) = self.stream.read_exact(&mut bytes) {
            panic!("no {reply:?}: {error}");
        }
        assert_eq!(String::from_utf8_lossy(&bytes), reply);
    }

    #[track_caller]
    pub(crate) fn ask(&mut self, words: &[&str], reply: &str) {
        self.send(words);
        self.expect(reply);
    }

    #[track_caller]
    pub(crate) fn expect_silence(&mut self) {
        self.stream.set_read_timeout(Some(SILENCE)).unwrap();
        let mut bytes = [0; 64];
        let found = self.stream.read(&mut bytes);
        self.stream.set_read_timeout(Some(SOON)).unwrap();
        let kind = found.as_ref().map_err(io::Error::kind);
        let silent = matches!(kind, Err(ErrorKind::WouldBlock | ErrorKind::TimedOut));
        assert!(silent, "{found:?}: {:?}", String::from_utf8_lossy(&bytes));
    }

    /// Reads everything up to the end of the connection.
    #[track_caller]
    pub(crate) fn rest(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        self.stream.read_to_end(&mut bytes).unwrap();
        bytes
    }

    #[track_caller]
    pub(crate) fn expect_end(&mut self) {
        assert_eq!(String::from_utf8_lossy(&self.rest()), "");
    }

    /// The server's id of this connection.
    pub(crate) fn id(&mut self) -> String {
        self.send(&["CLIENT", "ID"]);
        let mut line = Vec::new();
        while !line.ends_with(b"\r\n") {
            let mut byte = [0];
            self.stream.read_exact(&mut byte).unwrap();
            line.push(byte[0]);
        }
        String::from_utf8(line).unwrap()[1..].trim().to_owned()
    }
}

/// A request in the form that clients send.
pub(crate) fn frame(words: &[&str]) -> Vec<u8> {
    let mut bytes = format!("*{}\r\n", words.len());
    for word in words {
        bytes.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    bytes.into_bytes()
}

/// A server, a proxy in front of the server, and a client of the proxy.
pub(crate) fn rig() -> (RedisServer, Proxy, Wire) {
    let server = RedisServer::start();
    let proxy = Proxy::start(server.address());
    let wire = Wire::open(proxy.address());
    (server, proxy, wire)
}
