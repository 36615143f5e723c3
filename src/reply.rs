//! The words of commands, and the parts of their replies.

use std::time::Duration;

use redis::{Cmd, ToRedisArgs, Value};

use crate::error::Stop;

/// Sends commands in one write and returns the replies, with error replies.
pub(crate) type Pipeline<'a> = dyn FnMut(&[Cmd]) -> Result<Vec<Value>, Stop> + 'a;

/// Sends one command. Stops at a refusal.
pub(crate) fn ask(send: &mut Pipeline<'_>, command: Cmd) -> Result<Value, Stop> {
    let reply = known(send(&[command])?.pop())?;
    Stop::at_a_refusal([&reply])?;
    Ok(reply)
}

/// A command with its arguments.
pub(crate) fn command(word: &str, arguments: impl ToRedisArgs) -> Cmd {
    let mut command = redis::cmd(word);
    command.arg(arguments);
    command
}

/// Reads fields and values: a flat list in RESP2, a list of pairs in RESP3.
pub(crate) fn read_fields(reply: &Value) -> Option<Vec<(String, String)>> {
    let in_text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    let fields: Vec<(Vec<u8>, Vec<u8>)> = redis::from_redis_value_ref(reply).ok()?;
    Some(fields.into_iter().map(|(field, value)| (in_text(field), in_text(value))).collect())
}

/// Reads an integer reply.
pub(crate) fn int(value: &Value) -> Option<i64> {
    if let Value::Int(number) = value { Some(*number) } else { None }
}

/// Reads a list reply.
pub(crate) fn list(value: &Value) -> Option<&[Value]> {
    if let Value::Array(values) = value { Some(values) } else { None }
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

/// Returns a field of a flat list of names and values, or of a map.
pub(crate) fn field<'a>(reply: &'a Value, name: &str) -> Option<&'a Value> {
    reply.as_map_iter()?.find(|(key, _)| text(key).as_deref() == Some(name)).map(|(_, value)| value)
}

/// Reads the texts of a list; none of what is no list.
pub(crate) fn texts(value: &Value) -> Vec<String> {
    list(value).unwrap_or_default().iter().filter_map(text).collect()
}

/// Reads a number, also one that is written as a text.
pub(crate) fn number(value: &Value) -> Option<u64> {
    match value {
        // The conversions of the `redis` crate make a large number of a negative one.
        Value::Int(number) => u64::try_from(*number).ok(),
        _ => text(value)?.parse().ok(),
    }
}

/// Reads the reply to `TIME`.
pub(crate) fn server_time(reply: &Value) -> Option<Duration> {
    let [seconds, micros] = list(reply)? else { return None };
    Duration::from_secs(number(seconds)?).checked_add(Duration::from_micros(number(micros)?))
}

/// Ends the round trips with [`Stop::NoReply`] where a part of a reply has an unknown shape.
pub(crate) fn known<T>(part: Option<T>) -> Result<T, Stop> {
    part.ok_or(Stop::NoReply)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_beyond_all_clocks_is_no_time() {
        let time = |seconds: &[u8]| {
            server_time(&Value::Array(vec![Value::BulkString(seconds.into()), Value::Int(999_999_999)]))
        };
        assert_eq!(time(b"1"), Some(Duration::from_millis(1_000_999) + Duration::from_micros(999)));
        assert_eq!(time(b"18446744073709551615"), None);
    }
}
