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

/// The first owner in a hash of owners and counts.
pub(crate) fn holder(name: &LockName) -> Call<Option<(String, u64)>> {
    Call::plain(&["HGETALL"], name, |reply| {
        Some(read_fields(reply)?.into_iter().find_map(|(owner, count)| Some((owner, count.parse().ok()?))))
    })
}

/// The writer in the hash of a read-write lock.
pub(crate) fn writer(name: &LockName) -> Call<Option<(String, u64)>> {
    Call::plain(&["HGETALL"], name, |reply| {
        Some(
            read_fields(reply)?
                .into_iter()
                .find_map(|(field, count)| Some((field.strip_suffix(":write")?.to_owned(), count.parse().ok()?))),
        )
    })
}

/// One of the readers in the hash of a read-write lock.
pub(crate) fn reader(name: &LockName) -> Call<Option<(String, u64)>> {
    Call::plain(&["HGETALL"], name, |reply| {
        let reads = |field: &String| field != "mode" && !field.ends_with(":write");
        Some(
            read_fields(reply)?
                .into_iter()
                .filter(|(field, _)| reads(field))
                .find_map(|(owner, count)| Some((owner, count.parse().ok()?))),
        )
    })
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
