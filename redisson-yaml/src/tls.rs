//! The settings of TLS in a Redisson configuration, as far as they are not of Java.

use lockson::Tls;
use serde_norway::Value;

use crate::error::Result;
use crate::values::{bad, text, unsupported};

/// What the configuration says about TLS.
#[derive(Default)]
pub(super) struct TlsSettings {
    truststore: Option<String>,
    keystore: Option<String>,
    is_pem: bool,
    /// A setting that turns verification off.
    unverified: Option<(&'static str, &'static str)>,
}

impl TlsSettings {
    /// Takes a setting. Returns whether it counts here.
    pub(super) fn take(&mut self, key: &str, value: &Value) -> Result<bool> {
        match key {
            _ if value == &Value::Null => {}
            "sslTruststore" => self.truststore = Some(path(key, value)?),
            "sslKeystore" => self.keystore = Some(path(key, value)?),
            "sslKeystoreType" => self.is_pem = text(key, value)?.eq_ignore_ascii_case("PEM"),
            "sslVerificationMode" => match text(key, value)?.as_str() {
                "STRICT" => {}
                "CA_ONLY" => self.unverified = Some(("sslVerificationMode", WITHOUT_NAMES)),
                "NONE" => self.unverified = Some(("sslVerificationMode", UNVERIFIED)),
                _ => return Err(bad(key, "STRICT, CA_ONLY or NONE")),
            },
            "sslEnableEndpointIdentification" if value == &Value::Bool(true) => {}
            "sslEnableEndpointIdentification" => self.unverified = Some((NAMES_OFF, WITHOUT_NAMES)),
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// The settings of TLS; `None` for servers without.
    pub(super) fn taken(&self, uses_tls: bool, warnings: &mut Vec<String>) -> Result<Option<Tls>> {
        let stores = [("sslTruststore", &self.truststore), ("sslKeystore", &self.keystore)];
        if !uses_tls {
            let unused = stores.into_iter().filter(|(_, store)| store.is_some()).map(|(key, _)| key);
            let unused = unused.chain(self.unverified.map(|(key, _)| key));
            warnings.extend(unused.map(|key| format!("{key}: no effect: no address has rediss://")));
            return Ok(None);
        }
        if let Some((key, why)) = self.unverified {
            return Err(unsupported(key, why));
        }
        for (key, store) in stores {
            if store.as_ref().is_some_and(|store| !self.is_pem && !is_pem(store)) {
                return Err(unsupported(key, KEYSTORE_OF_JAVA));
            }
        }
        let mut tls = Tls::new();
        if let Some(authority) = &self.truststore {
            tls = tls.with_ca_file(authority);
        }
        if let Some(pair) = &self.keystore {
            tls = tls.with_client_certificate(pair, pair);
        }
        Ok(Some(tls))
    }
}

/// Returns the path in a URL of Java: `file:/path` or `file:///path`.
fn path(key: &str, value: &Value) -> Result<String> {
    let path = text(key, value)?;
    let Some(plain) = path.strip_prefix("file:") else { return Ok(path) };
    Ok(plain.strip_prefix("//").unwrap_or(plain).to_owned())
}

fn is_pem(path: &str) -> bool {
    [".pem", ".crt", ".cer"].iter().any(|end| path.to_ascii_lowercase().ends_with(end))
}

const KEYSTORE_OF_JAVA: &str = "a keystore of Java cannot be read here; write its certificates into a PEM file \
                                (`keytool -list -rfc`, `openssl pkcs12`) and name that one";
const UNVERIFIED: &str = "a server that is not verified can be anybody; where that is wanted, give the URL to \
                          Client::builder() and use Tls::without_verification()";
const WITHOUT_NAMES: &str = "the name of the server is always verified; give the name in its certificate to \
                             Tls::with_server_name()";
const NAMES_OFF: &str = "sslEnableEndpointIdentification";
