//! Opens the client that the options name.

use lockson::{Client, ClientBuilder, Tls};

use crate::Failure;
use crate::args::Connection;
use crate::output::report;

/// Returns a builder with the servers, the names and the certificates of the options.
pub(crate) fn builder(options: &Connection) -> Result<ClientBuilder, Failure> {
    let (mut builder, tls) = match &options.redisson_yaml {
        Some(file) => {
            let yaml = std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))?;
            let read = lockson_redisson_yaml::read(&yaml).map_err(|error| format!("{}: {error}", file.display()))?;
            for warning in read.warnings.iter().filter(|warning| warning.contains("changes what happens")) {
                report(format_args!("{}: {warning}", file.display()));
            }
            (read.builder, read.tls)
        }
        None => {
            let scheme = options.url.to_ascii_lowercase();
            let has_tls = scheme.starts_with("rediss") || scheme.starts_with("valkeys");
            (Client::builder(&options.url), has_tls.then(Tls::new))
        }
    };
    if let Some(prefix) = &options.prefix {
        builder = builder.name_prefix(prefix);
    }
    // Certificates of the environment may be there for other servers.
    if tls.is_some() || options.gives_certificates {
        builder = builder.tls(certified(tls.unwrap_or_default(), options));
    }
    Ok(builder.client_name("lockson-cli"))
}

/// For a list of whole names: a client without a prefix, and the prefix, of whatever option, before the beginning of a
/// name.
pub(crate) fn of_whole_names(options: &Connection, beginning: &str) -> Result<(Client, String), Failure> {
    let builder = builder(options)?;
    let mut whole = builder.clone().connect_lazily()?.get_lock(format!("{beginning}*")).name().to_owned();
    whole.pop();
    Ok((builder.name_prefix("").connect()?, whole))
}

fn certified(tls: Tls, options: &Connection) -> Tls {
    let tls = options.ca.iter().fold(tls, Tls::with_ca_file);
    let tls = options.server_name.iter().fold(tls, Tls::with_server_name);
    match (&options.cert, &options.key) {
        (Some(cert), Some(key)) => tls.with_client_certificate(cert, key),
        _ => tls,
    }
}
