//! The settings of TLS: trusted authorities, and the certificate of this client.

use std::fmt;
use std::path::{Path, PathBuf};

/// The settings of TLS for a URL like `rediss://`: trusted authorities, and the certificate of this client. Needs the
/// cargo feature `tls`.
///
/// Without settings, the certificate of the server must come from an authority that the system trusts, and be valid for
/// the host in the URL. Versions 1.2 and 1.3 of TLS are spoken. Files are read anew for each connection, so replaced
/// files need no restart; open connections stay as they are.
///
/// ```no_run
/// use lockson::{Client, Tls};
///
/// let tls = Tls::new()
///     .with_ca_file("/etc/redis/ca.pem")
///     .with_client_certificate("/etc/redis/client.pem", "/etc/redis/client.key");
/// let client = Client::builder("rediss://redis.example").tls(tls).connect()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "settings have an effect only where a builder gets them"]
pub struct Tls {
    /// The authorities to trust; those of the system where there is none.
    pub(crate) authorities: Vec<Pem>,
    /// The chain of certificates of the client, and the key of the first one.
    pub(crate) client_certificate: Option<(Pem, Pem)>,
    pub(crate) server_name: Option<String>,
    pub(crate) is_unverified: bool,
}

/// Says that a connection may lead to anyone: whoever stands between client and server reads the password, and grants
/// and takes locks. For tests only. Needs the cargo feature `tls`.
///
/// ```no_run
/// use lockson::{Client, DangerousNoVerification, Tls};
///
/// let tls = Tls::new().without_verification(DangerousNoVerification);
/// let client = Client::builder("rediss://localhost").tls(tls).connect()?;
/// # Ok::<(), lockson::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct DangerousNoVerification;

/// Text in PEM format, or the file with such a text. The text is never shown, because it may be a key.
#[derive(Clone)]
pub(crate) enum Pem {
    File(PathBuf),
    Text(Vec<u8>),
}

impl Tls {
    /// Settings that trust the authorities of the system.
    ///
    /// ```no_run
    /// use lockson::{Client, Tls};
    ///
    /// let client = Client::builder("rediss://redis.example").tls(Tls::new()).connect()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn new() -> Self {
        Self::default()
    }

    /// Trusts the authorities in this file of PEM certificates, in place of those of the system. Further calls add
    /// files.
    ///
    /// ```no_run
    /// use lockson::{Client, Tls};
    ///
    /// let tls = Tls::new().with_ca_file("/etc/redis/ca.pem");
    /// let client = Client::builder("rediss://redis.example").tls(tls).connect()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_ca_file(mut self, path: impl AsRef<Path>) -> Self {
        self.authorities.push(Pem::File(path.as_ref().to_owned()));
        self
    }

    /// Trusts the authorities in this text of PEM certificates, in place of those of the system. Further calls add
    /// authorities.
    ///
    /// ```no_run
    /// use lockson::{Client, Tls};
    ///
    /// let tls = Tls::new().with_ca_pem(std::env::var("REDIS_CA")?);
    /// let client = Client::builder("rediss://redis.example").tls(tls).connect()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_ca_pem(mut self, pem: impl AsRef<[u8]>) -> Self {
        self.authorities.push(Pem::Text(pem.as_ref().to_owned()));
        self
    }

    /// Sets certificate and key of the client, for servers that ask for a certificate (mTLS): two files in PEM format,
    /// the certificate with the authorities between it and the one that the server trusts. The key must not be
    /// encrypted.
    ///
    /// ```no_run
    /// use lockson::{Client, Tls};
    ///
    /// let tls = Tls::new().with_client_certificate("/etc/redis/client.pem", "/etc/redis/client.key");
    /// let client = Client::builder("rediss://redis.example").tls(tls).connect()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_client_certificate(mut self, certificate: impl AsRef<Path>, key: impl AsRef<Path>) -> Self {
        self.client_certificate =
            Some((Pem::File(certificate.as_ref().to_owned()), Pem::File(key.as_ref().to_owned())));
        self
    }

    /// Sets certificate and key as texts in PEM format; see [`with_client_certificate`](Self::with_client_certificate).
    ///
    /// ```no_run
    /// use lockson::{Client, Tls};
    ///
    /// let (certificate, key) = (std::env::var("REDIS_CERTIFICATE")?, std::env::var("REDIS_KEY")?);
    /// let tls = Tls::new().with_client_certificate_pem(certificate, key);
    /// let client = Client::builder("rediss://redis.example").tls(tls).connect()?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn with_client_certificate_pem(mut self, certificate: impl AsRef<[u8]>, key: impl AsRef<[u8]>) -> Self {
        self.client_certificate =
            Some((Pem::Text(certificate.as_ref().to_owned()), Pem::Text(key.as_ref().to_owned())));
        self
    }

    /// Sets the name that the certificate of the server must have, and that the server is told (SNI). Defaults to the
    /// host in the URL.
    ///
    /// For a server that is reached by another name than that of its certificate: an address, or the end of a tunnel.
    ///
    /// ```no_run
    /// use lockson::{Client, Tls};
    ///
    /// let tls = Tls::new().with_server_name("redis.example");
    /// let client = Client::builder("rediss://10.0.0.7").tls(tls).connect()?;
    /// # Ok::<(), lockson::Error>(())
    /// ```
    pub fn with_server_name(mut self, name: impl AsRef<str>) -> Self {
        self.server_name = Some(name.as_ref().to_owned());
        self
    }

    /// Accepts any certificate of the server. The connection is encrypted, but may lead to anyone. See
    /// [`DangerousNoVerification`].
    pub fn without_verification(mut self, _: DangerousNoVerification) -> Self {
        self.is_unverified = true;
        self
    }
}

impl fmt::Debug for Pem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Text(_) => f.write_str("a text"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_never_show_a_key() {
        let tls = Tls::new()
            .with_ca_file("/ca.pem")
            .with_ca_pem("canary")
            .with_client_certificate_pem("canary", "canary")
            .with_server_name("h");
        let shown = format!("{tls:?}");
        assert!(!shown.contains("canary") && !format!("{:?}", b"canary").contains(&shown), "{shown}");
        assert!(shown.contains("/ca.pem"), "{shown}");
    }
}
