//! Stands in for TLS where the feature `tls` is off: no value of these types exists.

use std::io;

use super::address::Address;
use super::stream::TimedStream;
use crate::error::Result;
use crate::time::Instant;

/// The settings of TLS.
#[derive(Clone, Debug)]
pub(crate) enum Tls {}

/// Begins sessions.
pub(crate) enum Connector {}

/// The session of one connection.
pub(super) enum Session {}

/// What a failure of TLS means.
#[derive(Debug)]
pub(super) enum Trouble {}

impl Connector {
    /// No URL asks for TLS here: reading the URL refuses it.
    pub(crate) fn for_address(_: Option<Tls>, _: &Address, _deadline: Instant) -> Result<Option<Self>> {
        Ok(None)
    }

    pub(crate) fn for_member(&self, _address: &Address) -> Self {
        match *self {}
    }

    pub(super) fn session(&self, _deadline: Instant) -> Result<Session> {
        match *self {}
    }
}

impl Session {
    pub(super) fn shake_hands(&mut self, _stream: &mut TimedStream, _deadline: Instant) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn write_all(&mut self, _: &mut TimedStream, _: &[u8], _deadline: Instant) -> io::Result<()> {
        match *self {}
    }

    pub(super) fn read(&mut self, _: &mut TimedStream, _: &mut [u8], _deadline: Option<Instant>) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn write_now(&mut self, _: &mut TimedStream, _: &[u8]) -> io::Result<usize> {
        match *self {}
    }

    pub(super) fn has_decrypted(&self) -> bool {
        match *self {}
    }

    pub(super) fn is_stale(&mut self, _: &mut TimedStream) -> bool {
        match *self {}
    }
}

impl Trouble {
    pub(super) fn of(_error: &io::Error) -> Option<&Self> {
        None
    }

    pub(super) fn what(&self) -> &str {
        match *self {}
    }

    pub(super) fn is_final(&self) -> bool {
        match *self {}
    }
}
