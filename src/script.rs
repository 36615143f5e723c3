//! What the requests to Redis share: calls, replies, and questions without a script.

pub(crate) mod answer;
pub(crate) mod bundle;
mod call;
pub(crate) mod examination;
pub(crate) mod inspection;
pub(crate) mod look;
pub(crate) mod once;
pub(crate) mod query;
#[cfg(test)]
pub(crate) mod tests;
mod words;

pub(crate) use crate::reply::Pipeline;
pub(crate) use answer::{Attempt, Counts, IfLock, NotALock, Raise, Released, Renewal, RenewalAnswer, Side};
pub(crate) use call::{Call, Script, pipelined};

/// Declares a bundled script by its path below `lua/`.
macro_rules! lua {
    ($path:literal) => {
        $crate::script::Script::new(include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/lua/", $path)))
    };
}
pub(crate) use lua;
