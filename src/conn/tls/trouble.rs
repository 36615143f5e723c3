//! What a failure of TLS means, in words, and what to do.

use std::io;
use std::time::Duration;

use rustls::{AlertDescription, CertificateError};

use crate::conn::trouble::Trouble;
use crate::tls::{Pem, Tls};

impl Tls {
    /// The error of a connection whose session with these settings failed.
    pub(super) fn trouble(&self, error: &rustls::Error) -> io::Error {
        use rustls::Error as Is;
        let is_final = matches!(error, Is::InvalidCertificate(_) | Is::AlertReceived(_) | Is::PeerIncompatible(_));
        let trouble = Trouble { what: self.what(error), is_final, text: error.to_string() };
        io::Error::new(io::ErrorKind::InvalidData, trouble)
    }

    /// Says what the server did, and what helps.
    fn what(&self, error: &rustls::Error) -> String {
        match error {
            rustls::Error::InvalidCertificate(error) => self.what_of_certificate(error),
            rustls::Error::AlertReceived(alert) => self.what_of_alert(*alert),
            rustls::Error::InvalidMessage(_) | rustls::Error::InappropriateMessage { .. } => {
                "does not speak TLS on this port: write redis:// for a plain port, or give the port for TLS".into()
            }
            rustls::Error::PeerIncompatible(_) => NO_COMMON_VERSION.into(),
            _ => "broke the rules of TLS: something between client and server may change bytes".into(),
        }
    }

    fn what_of_certificate(&self, error: &CertificateError) -> String {
        use CertificateError as Is;
        let what = match error {
            Is::ExpiredContext { time, not_after } => {
                let ago = in_days(time.as_secs().saturating_sub(not_after.as_secs()));
                format!("that expired {ago} ago: {RENEW}")
            }
            Is::NotValidYetContext { time, not_before } => {
                let ahead = in_days(not_before.as_secs().saturating_sub(time.as_secs()));
                format!("that is valid only {ahead} from now: {RENEW}")
            }
            Is::UnknownIssuer => format!(
                "that is self-signed or comes from an authority that {} do not have: give the \
                 certificate of its authority by Tls::with_ca_file(), and the server those between the two",
                in_words(&self.authorities)
            ),
            Is::NotValidForNameContext { expected, presented } => {
                let names = presented.iter().filter_map(|name| plain_name(name)).take(MOST_NAMES).collect::<Vec<_>>();
                let names = if names.is_empty() { "no name".to_owned() } else { names.join(", ") };
                let expected = expected.to_str();
                format!(
                    "for {names}, and not for {expected}: connect by a name of the certificate, \
                     or say which one to expect by Tls::with_server_name()"
                )
            }
            Is::InvalidPurpose | Is::InvalidPurposeContext { .. } => {
                "that is not meant for servers: make one for server authentication".into()
            }
            Is::BadSignature => "that its authority did not sign: check that the CA file belongs to this server".into(),
            // The most frequent one: `openssl req -x509` makes authorities.
            Is::Other(_) => "that is no certificate of a server: one of an authority \
                             (CA:TRUE) cannot be one; sign a certificate for the server"
                .into(),
            _ => "that cannot be verified: make it anew, for server authentication".into(),
        };
        format!("has a TLS certificate {what}")
    }

    fn what_of_alert(&self, alert: AlertDescription) -> String {
        use AlertDescription as Is;
        let has_certificate = self.client_certificate.is_some();
        let mine = if has_certificate { "refused the client certificate" } else { "requires a client certificate" };
        let what = match alert {
            Is::CertificateRequired | Is::BadCertificate | Is::NoCertificate if !has_certificate => {
                return format!("{mine}: {GIVE_ONE}");
            }
            Is::CertificateExpired => "refused the client certificate because it expired: renew it",
            Is::CertificateRevoked => "refused the client certificate because it was revoked: make another one",
            Is::UnknownCA => {
                "refused the client certificate because it does not know its authority: sign the certificate by an \
                 authority in the server's tls-ca-cert-file, and append the certificates between the two"
            }
            Is::CertificateRequired
            | Is::BadCertificate
            | Is::UnsupportedCertificate
            | Is::CertificateUnknown
            | Is::AccessDenied
            | Is::DecryptError => {
                "refused the client certificate: check that it is meant for clients and signed by an authority in the \
                 server's tls-ca-cert-file"
            }
            Is::ProtocolVersion | Is::InsufficientSecurity => NO_COMMON_VERSION,
            Is::UnrecognisedName => {
                "has no TLS certificate for this name: say which one to expect by Tls::with_server_name()"
            }
            Is::HandshakeFailure if !has_certificate => {
                return format!(
                    "refused the TLS handshake: it shares no cipher with this client, or {mine}: {GIVE_ONE}"
                );
            }
            _ => "ended the TLS session with an alert: its log says why",
        };
        what.into()
    }
}

/// A name as certificates list it: `DnsName("example.com")` or `IpAddress(10.0.0.7)`. `None` for a name with characters
/// that no name has: the texts of a stranger are not repeated.
fn plain_name(listed: &str) -> Option<&str> {
    let name = listed.split_once('(').map_or(listed, |(_, rest)| rest.trim_end_matches(')')).trim_matches('"');
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "*.-_:".contains(c);
    (!name.is_empty() && name.len() <= 253 && name.chars().all(is_plain)).then_some(name)
}

/// The trusted authorities, as the subject of a sentence in the plural.
fn in_words(authorities: &[Pem]) -> String {
    let files: Vec<_> = authorities.iter().map(|pem| format!("{pem:?}")).collect();
    match files.as_slice() {
        [] => "the authorities of this system".to_owned(),
        files => format!("the authorities of {}", files.join(" and ")),
    }
}

fn in_days(seconds: u64) -> String {
    match seconds / 86_400 {
        0 => format!("{:?}", Duration::from_secs(seconds)),
        1 => "1 day".to_owned(),
        days => format!("{days} days"),
    }
}

const RENEW: &str = "renew it on the server, or set the clock of this machine right";
const GIVE_ONE: &str = "give one by Tls::with_client_certificate()";
const NO_COMMON_VERSION: &str =
    "shares no version of TLS or no cipher with this client: allow TLS 1.2 or 1.3 there (tls-protocols)";
/// A certificate for many hosts lists hundreds.
const MOST_NAMES: usize = 5;
