//! The error about a configuration.

use std::fmt;

use lockson::ErrorKind;

/// A result of this crate.
pub type Result<T> = std::result::Result<T, Error>;

/// Why a configuration was not read. The text names the setting and what to do, and quotes no value.
#[derive(Clone, Debug)]
pub struct Error {
    kind: ErrorKind,
    text: String,
}

impl Error {
    pub(crate) fn new(kind: ErrorKind, text: impl Into<String>) -> Self {
        Self { kind, text: text.into() }
    }

    /// [`ErrorKind::Config`] for a file that is wrong, [`ErrorKind::Unsupported`] for what cannot be done here.
    #[must_use]
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl std::error::Error for Error {}
