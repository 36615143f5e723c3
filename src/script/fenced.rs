//! The script of the fenced lock: the state of the plain lock, and the last token in a key of its own.

use super::answer::Attempt;
use super::{Call, Script, lua};
use crate::name::LockName;
use crate::owner::OwnerId;
use crate::time::Lease;

static ACQUIRE: Script = lua!("fenced/acquire.lua");

/// The check of tokens for resources that are stored in Redis.
pub(crate) const ACCEPT: &str = include_str!("../../lua/fenced/accept.lua");

pub(crate) fn acquire(name: &LockName, owner: &OwnerId, lease: Lease) -> Call<Attempt> {
    ACQUIRE.call(name, &[name.key(), name.token().as_bytes()], Attempt::read).arg(lease.millis()).arg(owner.as_str())
}
