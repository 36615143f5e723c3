//! One lock of several, on its way.

use std::time::Duration;

use crate::engine::acquire::stand_back::Wanted;
use crate::engine::parts::Engine;
use crate::engine::request::AcquireRequest;
use crate::state::exchange::Bounds;
use crate::time::Instant;

/// One lock of several, with its client and its request.
pub(crate) struct Part<'a> {
    pub(crate) engine: &'a Engine,
    pub(crate) request: AcquireRequest<'a>,
}

impl<'a> Part<'a> {
    pub(crate) fn wanted(&'a self) -> Wanted<'a> {
        (self.engine, self.request.name, Some(&**self.request.kind))
    }
}

/// The bounds of a request that is sent once, and waits for so long.
pub(crate) fn once(limit: Duration) -> Bounds {
    let now = Instant::now();
    Bounds { retry_until: now, repeat: false, ..Bounds::within(now, limit, limit) }
}
