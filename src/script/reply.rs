//! Reads the parts of replies.

use redis::{ServerError, Value};

use crate::error::{Refusal, Stop};

/// Reads an integer reply.
pub(crate) fn int(value: &Value) -> Option<i64> {
    match value {
        Value::Int(number) => Some(*number),
        _ => None,
    }
}

/// Reads a list reply.
pub(crate) fn list(value: &Value) -> Option<&[Value]> {
    match value {
        Value::Array(values) => Some(values),
        _ => None,
    }
}

/// Reads a text, in whatever form.
pub(crate) fn text(value: &Value) -> Option<String> {
    match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::VerbatimString { text, .. } | Value::SimpleString(text) => Some(text.clone()),
        Value::Okay => Some("OK".to_owned()),
        _ => None,
    }
}

/// Ends the round trips with [`Stop::NoReply`] where a part of a reply has an unknown shape.
pub(crate) fn known<T>(part: Option<T>) -> Result<T, Stop> {
    part.ok_or(Stop::NoReply)
}

/// The refusal of one command of several.
pub(crate) fn refused(error: &ServerError) -> Stop {
    Stop::Refused(Refusal::new(error))
}
