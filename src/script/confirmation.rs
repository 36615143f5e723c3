//! The write that precedes the wait for replicas.

use redis::Value;

use super::{Script, lua};
use crate::durability::Durability;
use crate::name::LockName;
use crate::transport::{Confirmation, PubSub, Question};

static TOUCH: Script = lua!("durability/touch.lua");

/// Builds the step that follows a grant of this lock, whose hold is under `key`.
pub(crate) fn of(name: &LockName, key: &[u8], needs: Durability) -> Confirmation {
    let call = TOUCH.call(name, &[key], |reply: &Value| matches!(reply, Value::Int(_)).then_some(()));
    // With its source: the step has no second chance, and costs a round trip in any case.
    Confirmation { touch: call.packed_with_source(PubSub::Plain).unwrap_or_else(|| call.packed(PubSub::Plain)), needs }
}
