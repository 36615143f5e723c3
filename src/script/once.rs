//! Requests that count: a number and an idempotency key give each request its effect once.

use redis::Value;

use super::words::Word;
use super::{Call, Script, lua};
use crate::name::{Joined, LockName};
use crate::reply::int;
use crate::time::Lease;

static CLOSE: Script = lua!("once/close.lua");
static DELETE: Script = lua!("once/delete.lua");
static SET_ONCE: Script = lua!("once/set_once.lua");

/// The idempotency key of a request, and the number of the request.
///
/// One request at a time uses a key, and its numbers only rise. The script of a request stores number and answer under
/// the key: a copy with the same number gets the stored answer, and a copy with a smaller number does nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Once {
    pub(crate) key: String,
    pub(crate) number: u64,
}

/// Starts the call of a script whose first arguments are the idempotency key and the number.
pub(crate) fn call<T>(script: &'static Script, name: &LockName, once: &Once, read: fn(&Value) -> Option<T>) -> Call<T> {
    call_with(script, name, &[name.key(), once.key.as_bytes()], once, read)
}

/// Starts the call of a script with these keys, the idempotency key among them.
pub(crate) fn call_with<T>(
    script: &'static Script,
    name: &LockName,
    keys: &[impl Word],
    once: &Once,
    read: fn(&Value) -> Option<T>,
) -> Call<T> {
    script.call(name, keys, read).arg(once.number).arg(MEMORY_MS)
}

/// Closes the requests with smaller numbers: a late copy of them does nothing.
pub(crate) fn close(name: &LockName, once: &Once) -> Call<()> {
    call_with(&CLOSE, name, &[once.key.as_bytes()], once, |reply| int(reply).map(drop))
}

/// Makes a counter if there is none; the caller adds the arguments of a publication.
pub(crate) fn set_once(name: &LockName, once: &Once, count: u32, time_to_live: Option<Lease>) -> Call<bool> {
    call(&SET_ONCE, name, once, is_one).arg(count).arg(time_to_live.map_or(0, Lease::millis))
}

/// Deletes a counter with the keys `beside`; the caller adds the arguments of a publication, and an empty channel is no
/// message.
pub(crate) fn delete(name: &LockName, once: &Once, beside: &[Joined<'_>]) -> Call<bool> {
    let keys = [&[name.as_key(), Joined::of(&once.key)], beside].concat();
    call_with(&DELETE, name, &keys, once, is_one)
}

/// Reads a reply of which 1 means "yes".
pub(crate) fn is_one(reply: &Value) -> Option<bool> {
    Some(int(reply)? == 1)
}

/// The time for which a script remembers a request. A copy that arrives later than this would run.
pub(crate) const MEMORY: std::time::Duration = std::time::Duration::from_millis(MEMORY_MS);
const MEMORY_MS: u64 = 10 * 60 * 1_000;
