//! The scripts of the count-down latch: the key holds the remaining count.

use crate::name::LockName;
use crate::script::once::{self, Once};
use crate::script::reply::int;
use crate::script::{Call, Publication, Script, lua};

static SET_ONCE: Script = lua!("latch/set_once.lua");
static COUNT_DOWN: Script = lua!("latch/count_down.lua");

/// Sets the count if there is none.
pub(crate) fn set_once(name: &LockName, once: &Once, count: u32) -> Call<bool> {
    let call = once::call(&SET_ONCE, name, once, |reply| Some(int(reply)? == 1));
    call.arg(count).arg(name.latch_channel()).arg(NEW_COUNT).publish_command()
}

/// Counts down by one.
pub(crate) fn count_down(name: &LockName, once: &Once) -> Call<()> {
    let call = once::call(&COUNT_DOWN, name, once, |reply| int(reply).map(drop));
    call.arg(name.latch_channel()).arg(ZERO).publish_command()
}

/// Deletes the latch.
pub(crate) fn delete(name: &LockName, once: &Once) -> Call<bool> {
    once::delete(name, once, Some(Publication { channel: &name.latch_channel(), message: NEW_COUNT }))
}

/// The messages, as Redisson understands them.
const ZERO: &str = "0";
const NEW_COUNT: &str = "1";
