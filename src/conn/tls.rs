//! TLS between socket and connection.

mod connector;
mod session;
mod trouble;
mod unverified;

pub(crate) use connector::Connector;
pub(super) use session::Session;
pub(super) use trouble::Trouble;

pub(crate) use crate::tls::Tls;
