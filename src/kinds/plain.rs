//! The plain lock: exclusive, with re-entry or without.

use super::{Kind, ONLY_ONCE, prelude::*};

/// Redisson's `RLock`, and its non-reentrant lock: the same state in Redis, but a second take is an error.
#[derive(Debug)]
pub(crate) struct Plain {
    pub(crate) reentrant: bool,
}

impl Kind for Plain {
    fn label(&self, _: Side) -> LockKind {
        if self.reentrant { LockKind::Plain } else { LockKind::NonReentrant }
    }

    fn check_reentry(&self, _: Counts) -> Result<(), &'static str> {
        if self.reentrant { Ok(()) } else { Err(ONLY_ONCE) }
    }

    fn bundles(&self) -> bool {
        true
    }

    fn hands_on(&self) -> bool {
        true
    }
}
