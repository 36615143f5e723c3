//! The answer to one command: the time of the operation, and the outcome or the failure.

use lockson::ErrorKind;

use lockson_harness::clock;
use lockson_harness::percent::encode;

/// The answer to one command, under construction.
#[derive(Debug)]
pub(crate) struct Answer {
    started: u64,
    returned: Option<u64>,
    values: String,
}

/// Why a command failed, sorted into the kinds of the protocol.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) kind: &'static str,
    pub(crate) message: String,
}

impl Answer {
    pub(crate) fn new() -> Self {
        Self { started: clock::nanos(), returned: None, values: String::new() }
    }

    /// Runs the command's operation; t0 and t1 are taken right before and after.
    pub(crate) fn time<T>(&mut self, operation: impl FnOnce() -> T) -> T {
        self.started = clock::nanos();
        let outcome = operation();
        self.returned = Some(clock::nanos());
        outcome
    }

    pub(crate) fn put(&mut self, key: &str, value: impl ToString) {
        self.values.push_str(&format!(" {key}={}", encode(&value.to_string())));
    }

    pub(crate) fn put_list(&mut self, key: &str, values: &[impl AsRef<str>]) {
        let items: Vec<String> = values.iter().map(|value| encode(value.as_ref())).collect();
        self.values.push_str(&format!(" {key}={}", items.join(",")));
    }

    /// The line with the outcome.
    pub(crate) fn line(&self, id: &str, outcome: Result<(), Failure>) -> String {
        let times = format!("t0={} t1={}", self.started, self.returned.unwrap_or_else(clock::nanos));
        match outcome {
            Ok(()) => format!("{id} ok {times}{}", self.values),
            Err(failure) => format!("{id} err {times} kind={} message={}", failure.kind, encode(&failure.message)),
        }
    }
}

/// Runs the operation of a command, whose answer has the outcome under this key.
pub(crate) fn put<T: ToString>(
    answer: &mut Answer,
    key: &str,
    operation: impl FnOnce() -> lockson::Result<T>,
) -> Result<(), Failure> {
    let value = answer.time(operation)?;
    answer.put(key, value);
    Ok(())
}

impl Failure {
    pub(crate) fn bad_input(message: impl Into<String>) -> Self {
        Self { kind: "bad_input", message: message.into() }
    }

    pub(crate) fn unsupported(message: impl Into<String>) -> Self {
        Self { kind: "unsupported", message: message.into() }
    }

    pub(crate) fn other(error: impl ToString) -> Self {
        Self { kind: "other", message: error.to_string() }
    }
}

impl From<lockson::Error> for Failure {
    fn from(error: lockson::Error) -> Self {
        let kind = match error.kind() {
            ErrorKind::AlreadyHeld => "already_held",
            ErrorKind::BadInput | ErrorKind::Config => "bad_input",
            ErrorKind::Cancelled => "interrupted",
            ErrorKind::Lost(_) | ErrorKind::NotHeld => "not_owner",
            ErrorKind::Unknown => "timeout",
            ErrorKind::Connection | ErrorKind::Refused => "redis",
            ErrorKind::Unsupported => "unsupported",
            _ => "other",
        };
        Self { kind, message: format!("{:?}: {error}", error.kind()) }
    }
}
