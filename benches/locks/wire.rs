//! The bare connection of the floor: plain, or over TLS.
//!
//! A target is a URL, and for TLS behind a space the file of the authority: one word for another process.

use lockson::Client;
use redis::{Cmd, Connection, Value};

/// A connection without time-outs.
pub(crate) enum Wire {
    Plain(Box<Connection>),
    #[cfg(feature = "tls")]
    Secured(Box<secured::Secured>),
}

impl Wire {
    pub(crate) fn open(target: &str) -> Self {
        match target.split_once(' ') {
            #[cfg(feature = "tls")]
            Some((url, authority)) => Self::Secured(Box::new(secured::Secured::open(url, authority))),
            _ => {
                let opened = redis::Client::open(target).and_then(|client| client.get_connection());
                Self::Plain(Box::new(opened.expect("redis is reached")))
            }
        }
    }

    pub(crate) fn ask(&mut self, request: &Cmd) -> Value {
        match self {
            Self::Plain(connection) => request.query(connection).expect("redis answers"),
            #[cfg(feature = "tls")]
            Self::Secured(secured) => {
                secured.send(request);
                secured.receive()
            }
        }
    }

    /// Calls `heard` for each message on a channel, until `heard` returns `false`.
    pub(crate) fn listen(mut self, channel: &str, mut heard: impl FnMut() -> bool) {
        match &mut self {
            Self::Plain(connection) => {
                let mut pubsub = connection.as_pubsub();
                pubsub.subscribe(channel).expect("redis accepts the subscription");
                while pubsub.get_message().is_ok() && heard() {}
            }
            #[cfg(feature = "tls")]
            Self::Secured(secured) => {
                secured.send(redis::cmd("SUBSCRIBE").arg(channel));
                secured.receive();
                while !matches!(secured.receive(), Value::Nil) && heard() {}
            }
        }
    }
}

/// A client of the library for a target.
pub(crate) fn client(target: &str) -> Client {
    let client = match target.split_once(' ') {
        #[cfg(feature = "tls")]
        Some((url, authority)) => Client::builder(url).tls(lockson::Tls::new().with_ca_file(authority)).connect(),
        _ => Client::connect(target),
    };
    client.expect("redis is reached")
}

#[cfg(feature = "tls")]
mod secured {
    use std::io::Write;
    use std::net::TcpStream;
    use std::sync::Arc;

    use redis::{Cmd, Parser, Value};
    use rustls::crypto::ring;
    use rustls::pki_types::CertificateDer;
    use rustls::pki_types::pem::PemObject;
    use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

    /// One connection over TLS, as a simple caller makes it.
    pub(crate) struct Secured {
        stream: StreamOwned<ClientConnection, TcpStream>,
        parser: Parser,
    }

    impl Secured {
        pub(super) fn open(url: &str, authority: &str) -> Self {
            let place = url.trim_start_matches("rediss://").trim_end_matches("/0");
            let mut roots = RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_file(authority).expect("the file is there"))
                .expect("it is an authority");
            let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
                .with_safe_default_protocol_versions()
                .expect("ring has them")
                .with_root_certificates(roots)
                .with_no_client_auth();
            let host = place.split(':').next().unwrap_or_default().to_owned();
            let name = host.try_into().expect("it is a host");
            let session = ClientConnection::new(Arc::new(config), name).expect("the settings are good");
            let stream = TcpStream::connect(place).expect("redis is reached");
            stream.set_nodelay(true).expect("it is a TCP stream");
            Self { stream: StreamOwned::new(session, stream), parser: Parser::new() }
        }

        pub(super) fn send(&mut self, request: &Cmd) {
            self.stream.write_all(&request.get_packed_command()).expect("redis takes it");
        }

        /// The next reply; nil at the end of the connection.
        pub(super) fn receive(&mut self) -> Value {
            self.parser.parse_value(&mut self.stream).unwrap_or(Value::Nil)
        }
    }
}
