//! Requests that count: a number and an idempotency key give each request its effect once.

use super::reply::int;
use super::{Call, Script, lua};
use crate::name::LockName;

static CLOSE: Script = lua!("once/close.lua");
static DELETE: Script = lua!("once/delete.lua");

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
pub(crate) fn call<T>(
    script: &'static Script,
    name: &LockName,
    once: &Once,
    read: fn(&redis::Value) -> Option<T>,
) -> Call<T> {
    script.call(name, &[name.key(), once.key.as_bytes()], read).arg(once.number).arg(MEMORY_MS)
}

/// Starts the call of a script with one more key, `beside`, before the idempotency key.
pub(crate) fn call_beside<T>(
    script: &'static Script,
    name: &LockName,
    beside: &str,
    once: &Once,
    read: fn(&redis::Value) -> Option<T>,
) -> Call<T> {
    let keys = [name.key(), beside.as_bytes(), once.key.as_bytes()];
    script.call(name, &keys, read).arg(once.number).arg(MEMORY_MS)
}

/// Starts the call of a script that needs no counter: its keys are `key` and the idempotency key.
pub(crate) fn call_without_counter<T>(
    script: &'static Script,
    name: &LockName,
    key: &str,
    once: &Once,
    read: fn(&redis::Value) -> Option<T>,
) -> Call<T> {
    script.call(name, &[key.as_bytes(), once.key.as_bytes()], read).arg(once.number).arg(MEMORY_MS)
}

/// Closes the requests with smaller numbers: a late copy of them does nothing.
pub(crate) fn close(name: &LockName, once: &Once) -> Call<()> {
    CLOSE.call(name, &[once.key.as_bytes()], |reply| int(reply).map(drop)).arg(once.number).arg(MEMORY_MS)
}

/// Deletes a counter, and publishes `message`, if there is one.
pub(crate) fn delete(name: &LockName, once: &Once, message: Option<super::Publication<'_>>) -> Call<bool> {
    let (channel, message) = message.map_or(("", ""), |message| (message.channel, message.message));
    call(&DELETE, name, once, is_one).arg(channel).arg(message).publish_command()
}

/// Deletes a counter and the key beside it, without a message.
pub(crate) fn delete_both(name: &LockName, beside: &str, once: &Once) -> Call<bool> {
    let keys = [name.key(), once.key.as_bytes(), beside.as_bytes()];
    DELETE.call(name, &keys, is_one).arg(once.number).arg(MEMORY_MS).arg("").arg("").publish_command()
}

fn is_one(reply: &redis::Value) -> Option<bool> {
    Some(int(reply)? == 1)
}

/// The time for which a script remembers a request. A copy that arrives later than this would run.
pub(crate) const MEMORY: std::time::Duration = std::time::Duration::from_millis(MEMORY_MS);
const MEMORY_MS: u64 = 10 * 60 * 1_000;
