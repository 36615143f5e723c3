//! Begins TLS sessions by the settings of a client, with files as they are now.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::Resumption;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};

use super::Connector;
use super::session::TlsSession;
use super::unverified::Unverified;
use crate::conn::address::{Address, Endpoint};
use crate::conn::single_flight::SingleFlight;
use crate::conn::trouble::no_thread;
use crate::error::{Error, ErrorKind, Result};
use crate::sync::Mutex;
use crate::time::Instant;
use crate::tls::{Pem, Tls};

/// What sessions are made of.
pub(super) struct Source {
    /// The name in the certificate of the first server.
    name: ServerName<'static>,
    settings: Arc<Tls>,
    provider: Arc<CryptoProvider>,
    /// The authorities of the system, and when they were read: they are many, and change with the system.
    of_system: Mutex<Option<(Instant, Arc<RootCertStore>)>>,
    /// Files are read in a thread of their own, because a file system may hang.
    reads: SingleFlight<Result<Arc<ClientConfig>>>,
}

/// The connector for an address, and for other servers with the same settings; `None` for an address without TLS. Reads
/// all files once, so that a bad setting is told before any connection.
pub(crate) fn connector(settings: Option<Tls>, address: &Address, deadline: Instant) -> Result<Option<Connector>> {
    let connector = |source: Arc<Source>| -> Connector {
        Arc::new(move |address, deadline| Ok(Box::new(source.session(address, deadline)?)))
    };
    Ok(Source::new(settings, address, deadline)?.map(connector))
}

impl Source {
    pub(super) fn new(settings: Option<Tls>, address: &Address, deadline: Instant) -> Result<Option<Arc<Self>>> {
        let host = match (&address.endpoint, address.tls) {
            (Endpoint::Tcp(host, _), true) => host,
            _ if settings.is_none() => return Ok(None),
            (Endpoint::Tcp(..), _) => return fail("tls() needs a URL with TLS, like rediss:// or rediss+cluster://"),
            (Endpoint::Unix(_), _) => return fail("tls() has no effect on a Unix socket: leave it out"),
        };
        let settings = settings.unwrap_or_default();
        if settings.is_unverified && !settings.authorities.is_empty() {
            return fail("without_verification() trusts anyone: leave with_ca_file() out, which has no effect");
        }
        let (name, what) = match &settings.server_name {
            Some(name) => (name, "the name of with_server_name()"),
            None => (host, "the host of the URL"),
        };
        let name = ServerName::try_from(name.clone());
        let name = name.or_else(|_| fail(format!("{what} is no name that a TLS certificate has")))?;
        let (settings, provider) = (Arc::new(settings), Arc::new(ring::default_provider()));
        let (of_system, reads) = (Mutex::default(), SingleFlight::new("lockson-dial"));
        let source = Arc::new(Self { name, settings, provider, of_system, reads });
        source.session(address, deadline)?;
        Ok(Some(source))
    }

    /// A host that no certificate can name is verified by the name of the first server.
    fn name_at(&self, address: &Address) -> ServerName<'static> {
        let own = match (&self.settings.server_name, &address.endpoint) {
            (None, Endpoint::Tcp(host, _)) => ServerName::try_from(host.clone()).ok(),
            _ => None,
        };
        own.unwrap_or_else(|| self.name.clone())
    }

    pub(super) fn session(self: &Arc<Self>, address: &Address, deadline: Instant) -> Result<TlsSession> {
        let source = Arc::clone(self);
        let read = self.reads.ask(0, deadline, move |_| source.config().map(Arc::new));
        let (_, config) = read.map_err(|error| match error.kind() {
            io::ErrorKind::TimedOut => {
                let text = "the TLS settings: the files were not read in time; their file system may hang";
                Error::new(ErrorKind::Connection, text)
            }
            _ => no_thread("read the files of the TLS settings", error),
        })?;
        let connection = ClientConnection::new(config?, self.name_at(address));
        Ok(TlsSession::new(connection.map_err(unusable)?, Arc::clone(&self.settings)))
    }

    fn config(&self) -> Result<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(Arc::clone(&self.provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?;
        let builder = if self.settings.is_unverified {
            builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(Arc::clone(&self.provider))))
        } else {
            builder.with_root_certificates(self.roots()?)
        };
        let mut config = match &self.settings.client_certificate {
            None => builder.with_no_client_auth(),
            Some((chain, key)) => {
                let (certificates, secret) = (certificates(chain)?, private_key(key)?);
                builder.with_client_auth_cert(certificates, secret).map_err(|error| match error {
                    rustls::Error::InconsistentKeys(_) => bad(key, FOREIGN_KEY),
                    _ => bad(key, "key or certificate are of a kind that is not supported; make an ECDSA or RSA key"),
                })?
            }
        };
        // Each connection verifies certificates anew, so an authority that is not trusted any more counts at once.
        config.resumption = Resumption::disabled();
        Ok(config)
    }

    fn roots(&self) -> Result<Arc<RootCertStore>> {
        if self.settings.authorities.is_empty() {
            return self.roots_of_system();
        }
        let mut roots = RootCertStore::empty();
        for pem in &self.settings.authorities {
            for certificate in certificates(pem)? {
                roots.add(certificate).map_err(|_| {
                    bad(pem, "it has a certificate that cannot be read as one of an authority; take that one out")
                })?;
            }
        }
        Ok(Arc::new(roots))
    }

    fn roots_of_system(&self) -> Result<Arc<RootCertStore>> {
        let now = Instant::now();
        if let Some((read, roots)) = &*self.of_system.lock()
            && now < read.after(READ_AGAIN)
        {
            return Ok(Arc::clone(roots));
        }
        let mut roots = RootCertStore::empty();
        // Systems have single certificates that cannot be read; the others count.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        if roots.is_empty() {
            return fail("this system has no TLS authorities: install ca-certificates, or use Tls::with_ca_file()");
        }
        let roots = Arc::new(roots);
        *self.of_system.lock() = Some((now, Arc::clone(&roots)));
        Ok(roots)
    }
}

fn certificates(pem: &Pem) -> Result<Vec<CertificateDer<'static>>> {
    let found = CertificateDer::pem_slice_iter(&bytes_of(pem)?).collect::<std::result::Result<Vec<_>, _>>();
    // The error of the parser may quote the text.
    let found = found.map_err(|_| bad(pem, "its PEM format is damaged; copy the file again"))?;
    if found.is_empty() {
        return Err(bad(pem, "there is no certificate in PEM format; one begins with -----BEGIN CERTIFICATE"));
    }
    Ok(found)
}

fn private_key(pem: &Pem) -> Result<PrivateKeyDer<'static>> {
    let why = "there is no private key in PEM format; an encrypted key must be decrypted first (openssl pkey)";
    PrivateKeyDer::from_pem_slice(&bytes_of(pem)?).map_err(|_| bad(pem, why))
}

fn bytes_of(pem: &Pem) -> Result<Vec<u8>> {
    match pem {
        Pem::Text(text) => Ok(text.clone()),
        Pem::File(path) => read(path).map_err(|why| bad(pem, &why)),
    }
}

/// Reads a file of limited size. Anything but a file could block without end.
fn read(path: &Path) -> std::result::Result<Vec<u8>, String> {
    let words = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => "it does not exist; check the path".to_owned(),
        io::ErrorKind::PermissionDenied => "this process has no right to read it; check its owner and mode".to_owned(),
        other => format!("it cannot be read: {other}"),
    };
    if !path.metadata().map_err(words)?.is_file() {
        return Err("it is no file; give the path of a file in PEM format".to_owned());
    }
    let mut bytes = vec![];
    File::open(path).and_then(|file| file.take(LARGEST_FILE + 1).read_to_end(&mut bytes)).map_err(words)?;
    if bytes.len() as u64 > LARGEST_FILE {
        return Err(format!("it has more than {LARGEST_FILE} bytes; give a file with certificates or a key alone"));
    }
    Ok(bytes)
}

fn bad(pem: &Pem, why: &str) -> Error {
    let place = match pem {
        Pem::File(path) => format!("the file {}", path.display()),
        Pem::Text(_) => "a text in PEM format".to_owned(),
    };
    Error::new(ErrorKind::Config, format!("the TLS settings: {place} cannot be used: {why}"))
}

/// The error of settings that the TLS library refuses for a reason of its own.
fn unusable(error: rustls::Error) -> Error {
    Error::with_source(ErrorKind::Config, "the TLS settings cannot be used", error)
}

fn fail<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::new(ErrorKind::Config, format!("the TLS settings: {}", why.into())))
}

const FOREIGN_KEY: &str = "the key does not belong to the client certificate; give the pair that was made together";
/// The authorities of the system are read again after this time.
const READ_AGAIN: Duration = Duration::from_secs(60);
const LARGEST_FILE: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    fn source(url: &str) -> Arc<Source> {
        let settings = Tls { is_unverified: true, ..Tls::default() };
        let deadline = Instant::now().after(Duration::from_secs(10));
        Source::new(Some(settings), &Address::parse(url).unwrap(), deadline).unwrap().unwrap()
    }

    #[test]
    fn each_member_is_verified_by_its_own_name() {
        let source = source("rediss://a.example");
        let name = |url| source.name_at(&Address::parse(url).unwrap()).to_str().into_owned();
        assert_eq!(name("rediss://b.example"), "b.example");
        assert_eq!(name("rediss://b\u{fc}cher.example"), "a.example");
    }

    #[test]
    fn the_authorities_of_the_system_are_read_again() {
        let source = source("rediss://a.example");
        let old = Arc::new(RootCertStore::empty());
        *source.of_system.lock() = Some((Instant::now().before(READ_AGAIN), Arc::clone(&old)));
        // A machine without authorities has no others.
        assert!(source.roots_of_system().map_or(true, |roots| !Arc::ptr_eq(&roots, &old)));
    }
}
