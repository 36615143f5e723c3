//! The fenced lock: the plain lock with numbered grants, so that a store can refuse a late writer.

use super::{AcquireArgs, Kind, prelude::*};

pub(super) static ACQUIRE: Script = lua!("fenced/acquire.lua");

/// Redisson's fenced lock.
#[derive(Debug)]
pub(crate) struct Fenced;

/// A Lua script for values that are stored in Redis: writes the value unless a writer with a newer token has written
/// before.
///
/// `KEYS[1]` is a key for the highest token so far, `KEYS[2]` the key of the value; `ARGV[1]` is the token, `ARGV[2]`
/// the new value. The script returns 1 after a write and 0 for a late writer. In a database a condition does the
/// same: `UPDATE t SET v = $1, token = $2 WHERE id = $3 AND token <= $2`. Over HTTP, send the token as a header and
/// let the service compare.
///
/// ```no_run
/// # let client = lockson::Client::connect("redis://localhost")?;
/// # let mut redis = redis::Client::open("redis://localhost").unwrap().get_connection().unwrap();
/// let guard = client.get_fenced_lock("stock:42").lock()?;
/// let script = redis::Script::new(lockson::ACCEPT_IF_NOT_OLDER);
/// let written: bool =
///     script.key("stock:newest").key("stock").arg(guard.token().value()).arg(41).invoke(&mut redis).unwrap();
/// assert!(written, "a holder with a newer token has written");
/// # Ok::<(), lockson::Error>(())
/// ```
pub const ACCEPT_IF_NOT_OLDER: &str = include_str!("../../lua/fenced/accept.lua");

impl Kind for Fenced {
    fn label(&self, _: Side) -> LockKind {
        LockKind::Fenced
    }

    /// A family of its own, because a hold of the plain lock has no token.
    fn family(&self) -> &'static str {
        "fenced"
    }

    fn acquire(&self, args: &AcquireArgs<'_>) -> Call<Attempt> {
        let call = ACQUIRE.call(args.name, &[args.name.as_key(), args.name.token()], Attempt::read);
        call.arg(args.lease.millis()).arg(args.owner)
    }
}
