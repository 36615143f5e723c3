//! Questions that change nothing and need no script.

use std::time::Duration;

use redis::Value;

use super::Call;
use super::call::int;
use crate::name::LockName;

pub(crate) fn exists(name: &LockName) -> Call<bool> {
    Call::plain(&["EXISTS"], name, |reply| Some(int(reply)? == 1))
}

/// The time a key has left; `None` where there is no key, the longest duration where it has no end.
pub(crate) fn time_to_live(name: &LockName) -> Call<Option<Duration>> {
    Call::plain(&["PTTL"], name, |reply| {
        Some(match int(reply)? {
            -2 => None,
            ms => Some(u64::try_from(ms).map_or(Duration::MAX, Duration::from_millis)),
        })
    })
}

/// The fields of a hash, in the order the server has them.
pub(crate) fn fields(name: &LockName) -> Call<Vec<(String, String)>> {
    Call::plain(&["HGETALL"], name, read_fields)
}

fn read_fields(reply: &Value) -> Option<Vec<(String, String)>> {
    let text = |value: &Value| match value {
        Value::BulkString(bytes) => Some(String::from_utf8_lossy(bytes).into_owned()),
        Value::SimpleString(text) => Some(text.clone()),
        _ => None,
    };
    match reply {
        Value::Map(pairs) => pairs.iter().map(|(field, value)| Some((text(field)?, text(value)?))).collect(),
        Value::Array(values) => values.chunks_exact(2).map(|pair| Some((text(&pair[0])?, text(&pair[1])?))).collect(),
        _ => None,
    }
}
