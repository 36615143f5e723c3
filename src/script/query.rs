//! Queries that change nothing and need no script.

use std::time::Duration;

use redis::Value;

use super::Call;
use super::answer::{IfLock, NotALock};
use super::inspection::{of_group, writer_of};
use crate::error::{Error, ErrorKind};
use crate::name::LockName;
use crate::reply::{int, read_fields};

/// The time to live of a key; `None` without a key, the longest duration without an expiry.
pub(crate) fn time_to_live(name: &LockName) -> Call<Option<Duration>> {
    Call::plain("PTTL", name, read_time_to_live)
}

/// Reads a time to live in ms: -2 for none, another negative number for one without an end.
pub(crate) fn read_time_to_live(reply: &Value) -> Option<Option<Duration>> {
    Some(match int(reply)? {
        -2 => None,
        ms => Some(u64::try_from(ms).map_or(Duration::MAX, Duration::from_millis)),
    })
}

/// The number under a key, 0 without a key.
pub(crate) fn count(name: &LockName) -> Call<IfLock<i64>> {
    Call::plain("GET", name, |reply| match reply {
        Value::Nil => Some(Ok(0)),
        Value::BulkString(digits) => {
            Some(std::str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok()).ok_or(NotALock))
        }
        _ => None,
    })
}

/// The owner in a hash of one owner and its hold count.
pub(crate) fn holder(name: &LockName) -> Call<IfLock<Option<(String, u64)>>> {
    some_fields(name, |reply| Some(sole_owner(read_fields(reply)?)))
}

fn sole_owner(mut fields: Vec<(String, String)>) -> IfLock<Option<(String, u64)>> {
    match fields.pop() {
        None => Ok(None),
        Some((field, count)) if fields.is_empty() && is_owner(&field) => Ok(Some(counted(&field, &count))),
        Some(_) => Err(NotALock),
    }
}

/// Whether a field looks like the owner of a lock, as in the scripts: an id, a colon and a number; then, perhaps, a side
/// and the id of a transaction.
fn is_owner(field: &str) -> bool {
    let is_number = |part: &str| {
        let digits = part.strip_prefix('-').unwrap_or(part);
        digits.starts_with(|first: char| first.is_ascii_digit())
            && digits.chars().all(|letter| letter.is_ascii_digit() || letter == '.')
    };
    let is_transaction = |part: &str| part.chars().all(|letter| letter.is_ascii_hexdigit());
    match &field.replacen(":write", "", 1).split(':').collect::<Vec<_>>()[..] {
        [_, .., number] if is_number(number) => true,
        [_, .., number, transaction] => is_number(number) && is_transaction(transaction),
        _ => false,
    }
}

/// The writer in the hash of a read-write lock.
pub(crate) fn writer(name: &LockName) -> Call<IfLock<Option<(String, u64)>>> {
    some_fields(name, |reply| Some(of_side(&read_fields(reply)?, writer_of)))
}

/// One of the readers in the hash of a read-write lock.
pub(crate) fn reader(name: &LockName) -> Call<IfLock<Option<(String, u64)>>> {
    some_fields(name, |reply| {
        let is_reader = |field: &str| field != "mode" && writer_of(field).is_none();
        Some(of_side(&read_fields(reply)?, |field| is_reader(field).then_some(field)))
    })
}

/// The first owner on a side, by the fields of a read-write lock, which are owners and `mode`. Three of many may be
/// without `mode`.
fn of_side(fields: &[(String, String)], owner_of: impl Fn(&str) -> Option<&str>) -> IfLock<Option<(String, u64)>> {
    let is_mode = |(field, _): &(String, String)| field == "mode";
    let has_mode = matches!(fields.len(), 0 | 3) || fields.iter().any(is_mode);
    // A part of a group's value has an owner in its middle.
    let are_owners = fields.iter().all(|field| is_mode(field) || is_owner(&field.0) && of_group(&field.0).is_none());
    if !has_mode || !are_owners {
        return Err(NotALock);
    }
    Ok(fields.iter().find_map(|(field, count)| Some(counted(owner_of(field)?, count))))
}

/// Reads three random fields of a hash, because a hash may have one field for each of many readers. Three suffice:
/// the hash of a writer has at most the fields `mode`, writer and the read count of that writer, and in any other
/// hash all fields except `mode` are owners.
fn some_fields<T>(name: &LockName, read: fn(&Value) -> Option<T>) -> Call<T> {
    Call::plain("HRANDFIELD", name, read).arg("3").arg("WITHVALUES")
}

/// An owner and its hold count. A count that is no number, which only others write, is still that of a hold.
fn counted(owner: &str, count: &str) -> (String, u64) {
    (owner.to_owned(), count.parse().unwrap_or(1))
}

/// Checks a number of permits.
pub(crate) fn check_permits(permits: u64) -> Result<(), Error> {
    if permits <= MOST_PERMITS.into() {
        return Ok(());
    }
    let text = format!("{permits} permits are not possible; give at most {MOST_PERMITS}");
    Err(Error::new(ErrorKind::BadInput, text))
}

/// Checks a number of permits that are taken together.
pub(crate) fn check_taking(permits: u32, most: u32) -> Result<(), Error> {
    if (1..=most).contains(&permits) {
        return Ok(());
    }
    let text = format!("{permits} permits cannot be taken together; take 1 to {most}");
    Err(Error::new(ErrorKind::BadInput, text))
}

pub(crate) fn too_many_free() -> Error {
    Error::new(ErrorKind::BadInput, format!("more than {MOST_PERMITS} permits would be free; nothing was changed"))
}

/// Redisson counts permits as a Java `int`.
pub(crate) const MOST_PERMITS: u32 = i32::MAX.cast_unsigned();

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_a_group_are_no_sides() {
        let sides = |fields: [&str; 3]| of_side(&fields.map(|field| (field.to_owned(), "1".to_owned())), |_| None);
        assert!(sides(["a:1.1", "b:2.1", "c:3"]).is_ok(), "readers");
        let value = "DqvoYruF5eyLDrILcprmBw";
        let [ends, count] = ["expire_time", "lock_count"].map(|part| format!("{value}:a:1.1:{part}"));
        assert!(sides([&ends, &count, "a:1.1"]).is_err() && sides([value, &ends, &count]).is_err());
    }

    #[test]
    fn fields_are_read_in_both_protocols() {
        let read = |reply: &str| read_fields(&redis::parse_redis_value(reply.as_bytes()).unwrap());
        let wanted = Some(vec![("mode".to_owned(), "read".to_owned()), ("a:1.1".to_owned(), "2".to_owned())]);
        let [mode, owner] = ["$4\r\nmode\r\n$4\r\nread\r\n", "$5\r\na:1.1\r\n$1\r\n2\r\n"];
        assert_eq!(read(&format!("*4\r\n{mode}{owner}")), wanted);
        assert_eq!(read(&format!("*2\r\n*2\r\n{mode}*2\r\n{owner}")), wanted);
        assert_eq!(read("*0\r\n"), Some(vec![]));
        assert_eq!(read("*1\r\n$1\r\na\r\n"), None);
        assert_eq!(read(":1\r\n"), None);
    }
}
