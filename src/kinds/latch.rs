//! The scripts of the count-down latch: the key holds the remaining count.

use super::prelude::*;

static COUNT_DOWN: Script = lua!("latch/count_down.lua");

/// Sets the count if there is none.
pub(crate) fn set_once(name: &LockName, once: &Once, count: u32) -> Call<bool> {
    once::set_once(name, once, count, None).publishing(name.latch_channel(), NEW_COUNT)
}

/// Counts down by one.
pub(crate) fn count_down(name: &LockName, once: &Once) -> Call<()> {
    let call = once::call(&COUNT_DOWN, name, once, |reply| int(reply).map(drop));
    call.publishing(name.latch_channel(), ZERO)
}

/// Deletes the latch.
pub(crate) fn delete(name: &LockName, once: &Once) -> Call<bool> {
    once::delete(name, once, &[]).publishing(name.latch_channel(), NEW_COUNT)
}

/// The messages, as Redisson understands them.
const ZERO: &str = "0";
const NEW_COUNT: &str = "1";
