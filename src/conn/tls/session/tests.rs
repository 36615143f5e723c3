//! Tests of a session against a server in this process, over a stream with small buffers.
#![cfg(test)]

use std::fs;
use std::io;
use std::net::TcpListener;
use std::os::unix::net::UnixStream;
use std::thread;
use std::time::Duration;

use lockson_harness::Authority;
use rustix::net::sockopt;
use rustls::crypto::ring;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection};

use super::*;
use crate::conn::address::Address;
use crate::conn::dialer::Dialer;
use crate::conn::tls::connector::{Source, connector};

const SOON: Duration = Duration::from_secs(10);

fn soon() -> Instant {
    Instant::now().after(SOON)
}

/// The server's end of a session.
struct Server {
    connection: ServerConnection,
    stream: UnixStream,
    received: usize,
}

impl Server {
    /// Receives what the client's system sent, and counts the bytes that can be decrypted.
    fn receive(&mut self, most: usize) -> usize {
        self.stream.set_nonblocking(true).unwrap();
        let mut left = most;
        while left > 0 {
            let mut part = vec![0; left.min(4_096)];
            match (&self.stream).read(&mut part) {
                Ok(0) => break,
                Ok(read) => {
                    left -= read;
                    let mut bytes = &part[..read];
                    while !bytes.is_empty() {
                        self.connection.read_tls(&mut bytes).unwrap();
                        self.open();
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        self.received
    }

    fn open(&mut self) {
        let state = self.connection.process_new_packets().unwrap();
        let mut plain = vec![0; state.plaintext_bytes_to_read()];
        self.connection.reader().read_exact(&mut plain).unwrap();
        self.received += plain.len();
    }

    fn send(&mut self, bytes: &[u8]) {
        self.stream.set_nonblocking(false).unwrap();
        self.connection.writer().write_all(bytes).unwrap();
        self.flush();
    }

    fn flush(&mut self) {
        while self.connection.wants_write() {
            self.connection.write_tls(&mut self.stream).unwrap();
        }
    }
}

/// The settings of a server that this authority has certified.
fn certified(authority: &Authority) -> Arc<ServerConfig> {
    let certificate = authority.server();
    let chain = CertificateDer::pem_slice_iter(&fs::read(&certificate.file).unwrap()).map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_slice(&fs::read(&certificate.key).unwrap()).unwrap();
    let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap();
    Arc::new(config.with_no_client_auth().with_single_cert(chain, key).unwrap())
}

/// A session after its handshake. The server has not sent its tickets, unless the handshake made it do so.
fn session() -> (TlsSession, TimedStream, Server) {
    let authority = Authority::new();
    let config = certified(&authority);
    let (ours, mut theirs) = UnixStream::pair().unwrap();
    for stream in [&ours, &theirs] {
        sockopt::set_socket_send_buffer_size(stream, 8 * 1024).unwrap();
        sockopt::set_socket_recv_buffer_size(stream, 8 * 1024).unwrap();
    }
    let address = Address::parse("rediss://localhost").unwrap();
    let tls = Tls::new().with_ca_file(authority.file());
    let mut session = Source::new(Some(tls), &address, soon()).unwrap().unwrap().session(&address, soon()).unwrap();
    let mut stream = TimedStream::new(ours);
    thread::scope(|scope| {
        let server = scope.spawn(|| {
            let mut connection = ServerConnection::new(config).unwrap();
            while connection.is_handshaking() {
                connection.complete_io(&mut theirs).unwrap();
            }
            Server { connection, stream: theirs, received: 0 }
        });
        session.shake_hands(&mut stream, soon()).unwrap();
        // The last message of the handshake goes with the first request, here a ping.
        session.write_all(&mut stream, b"ping", soon()).unwrap();
        let mut server = server.join().unwrap();
        server.open(); // the handshake may have read the ping as well
        while server.receive(usize::MAX) < 4 {}
        server.received = 0;
        server.flush();
        (session, stream, server)
    })
}

#[test]
fn sealed_bytes_are_written_by_and_by() {
    let (mut session, mut stream, mut server) = session();
    let bytes = vec![b'x'; 300_000];
    session.write_now(&mut stream, &bytes).unwrap();
    assert!(session.has_sealed(), "the buffers are smaller");
    while session.has_sealed() {
        server.receive(usize::MAX);
        session.write_now(&mut stream, &[]).unwrap();
    }
    assert_eq!(server.receive(usize::MAX), bytes.len());
}

#[test]
fn a_read_tells_that_sealed_bytes_cannot_be_written() {
    let (mut session, mut stream, server) = session();
    session.write_now(&mut stream, &vec![b'x'; 300_000]).unwrap();
    drop(server);
    session.write_now(&mut stream, &[]).unwrap();
    assert!(session.has_sealed());
    assert!(session.read(&mut stream, &mut [0; 8], None).is_err());
}

#[test]
fn a_request_that_is_broken_off_cannot_be_opened_whole() {
    let (mut session, mut stream, mut server) = session();
    let bytes = vec![b'x'; 300_000];
    let error = session.write_all(&mut stream, &bytes, Instant::now().after(Duration::from_millis(100))).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TimedOut);
    drop((session, stream));
    let received = server.receive(usize::MAX);
    assert!(received < bytes.len(), "{received}");
}

#[test]
fn tickets_leave_an_idle_connection_usable_and_bytes_do_not() {
    let (mut session, mut stream, mut server) = session();
    assert!(stream.is_readable(), "the tickets of the handshake are there");
    assert!(!session.is_stale(&mut stream));
    assert!(!stream.is_readable(), "they were read");
    server.send(b"+OK\r\n");
    assert!(session.is_stale(&mut stream));
    assert!(session.is_stale(&mut stream), "also the second time");
}

#[test]
fn an_end_makes_an_idle_connection_stale() {
    let (mut one, mut stream, server) = session();
    assert!(!one.is_stale(&mut stream));
    drop(server);
    assert!(one.is_stale(&mut stream));
    let (mut other, mut stream, mut server) = session();
    server.connection.send_close_notify();
    server.flush();
    assert!(other.is_stale(&mut stream));
    assert_eq!(other.read(&mut stream, &mut [0], Some(soon())).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn changed_bytes_end_the_session_in_plain_words() {
    let (mut session, mut stream, mut server) = session();
    assert!(!session.is_stale(&mut stream));
    server.stream.write_all(&[0x17, 3, 3, 0, 30]).unwrap();
    server.stream.write_all(&[7; 30]).unwrap();
    let error: io::Error = session.read(&mut stream, &mut [0], Some(soon())).unwrap_err();
    let trouble = Trouble::of(&error).expect("it is a failure of TLS");
    assert!(trouble.what.contains("something between client and server may change bytes"), "{}", trouble.what);
}

/// As a tunnel does whose server is down.
#[test]
fn an_end_behind_the_handshake_is_not_laid_to_the_port() {
    let authority = Authority::new();
    let config = certified(&authority);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = Address::parse(&format!("rediss://{}", listener.local_addr().unwrap())).unwrap();
    let tunnel = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut connection = ServerConnection::new(config).unwrap();
        while connection.is_handshaking() {
            connection.complete_io(&mut stream).unwrap();
        }
    });
    let tls = connector(Some(Tls::new().with_ca_file(authority.file())), &address, soon()).unwrap();
    let Err(fault) = Dialer::new(address, tls, "test".into()).dial(soon()) else { panic!("it does not answer") };
    let text = fault.into_error().to_string();
    assert!(text.ends_with("closed the connection before it answered"), "{text}");
    tunnel.join().unwrap();
}
