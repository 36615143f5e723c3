//! Certificates made for one test, in a folder that goes with the authority.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    date_time_ymd,
};
use tempfile::TempDir;

/// An authority that signs certificates of servers and clients.
///
/// The files of the certificates live as long as the authority or one of its certificates.
#[derive(Debug)]
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    folder: Arc<TempDir>,
    made: AtomicU32,
}

/// The files of one certificate.
#[derive(Debug, Clone)]
pub struct Certificate {
    /// The certificate, in PEM format.
    pub file: PathBuf,
    /// The key of the certificate, in PEM format.
    pub key: PathBuf,
    ca: PathBuf,
    _folder: Arc<TempDir>,
}

/// The days on which a certificate is valid.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Validity {
    /// Today.
    Now,
    /// Until a day that is over.
    Expired,
    /// From a day to come.
    Later,
}

impl Authority {
    /// Makes an authority with a key of its own.
    pub fn new() -> Authority {
        let folder = tempfile::Builder::new()
            .prefix("lockson-tls-")
            .tempdir()
            .expect("the folder for temporary files can be written");
        let mut params = CertificateParams::default();
        // Two authorities of one name could be taken for each other.
        params.distinguished_name.push(DnType::CommonName, format!("Lockson tests {}", uuid::Uuid::new_v4()));
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::DigitalSignature];
        let key = KeyPair::generate().expect("keys can be made");
        let certificate = params.self_signed(&key).expect("the certificate can be signed");
        write(&folder.path().join(CA), &certificate.pem());
        write(&folder.path().join("ca.key"), &key.serialize_pem());
        Authority { issuer: Issuer::new(params, key), folder: Arc::new(folder), made: AtomicU32::new(0) }
    }

    /// The file with the certificate of the authority, in PEM format.
    pub fn file(&self) -> PathBuf {
        self.folder.path().join(CA)
    }

    /// The certificate of the authority itself, as a careless operator gives it to a server.
    pub fn own(&self) -> Certificate {
        self.certificate(self.file(), self.folder.path().join("ca.key"))
    }

    /// A certificate of a server for `localhost` and 127.0.0.1.
    pub fn server(&self) -> Certificate {
        self.server_for(&["localhost", "127.0.0.1"], Validity::Now)
    }

    /// A certificate of a server for these host names and addresses.
    pub fn server_for(&self, names: &[&str], validity: Validity) -> Certificate {
        self.issue(names, ExtendedKeyUsagePurpose::ServerAuth, validity)
    }

    /// A certificate of a client.
    pub fn client(&self, validity: Validity) -> Certificate {
        self.issue(&["client.example"], ExtendedKeyUsagePurpose::ClientAuth, validity)
    }

    fn issue(&self, names: &[&str], usage: ExtendedKeyUsagePurpose, validity: Validity) -> Certificate {
        let names: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = CertificateParams::new(names).expect("these are names of hosts");
        params.distinguished_name.push(DnType::CommonName, "lockson");
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        match validity {
            Validity::Now => {}
            Validity::Expired => params.not_after = date_time_ymd(2020, 2, 1),
            Validity::Later => params.not_before = date_time_ymd(3000, 1, 1),
        }
        let key = KeyPair::generate().expect("keys can be made");
        let signed = params.signed_by(&key, &self.issuer).expect("the certificate can be signed");
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        let path = |ending| self.folder.path().join(format!("{number}.{ending}"));
        write(&path("pem"), &signed.pem());
        write(&path("key"), &key.serialize_pem());
        self.certificate(path("pem"), path("key"))
    }

    fn certificate(&self, file: PathBuf, key: PathBuf) -> Certificate {
        Certificate { file, key, ca: self.file(), _folder: Arc::clone(&self.folder) }
    }
}

impl Default for Authority {
    fn default() -> Authority {
        Authority::new()
    }
}

impl Certificate {
    /// The file with the certificate of the authority that signed this one.
    pub fn ca(&self) -> &Path {
        &self.ca
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).expect("the folder of the authority can be written");
}

const CA: &str = "ca.pem";
