//! One lock of several, on its way.

use std::time::Duration;

use crate::engine::acquire::stand_back::Wanted;
use crate::engine::parts::Engine;
use crate::engine::request::AcquireRequest;
use crate::state::exchange::Bounds;
use crate::time::Instant;
use crate::transport::Voting;

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

/// The bounds of one request to one node of a red lock: asked once, and for so long.
pub(crate) fn at_nodes(limit: Duration) -> Bounds {
    let now = Instant::now();
    Bounds { retry_until: now, repeat: false, ..Bounds::within(now, limit, limit) }
}

/// The same bounds for a request that a server which is down does not get.
pub(crate) fn unless_down(limit: Duration) -> Bounds {
    Bounds { voting: Voting { skips_down: true, counts_after: None }, ..at_nodes(limit) }
}

/// The bounds of a vote: a server that started lately has none, nor has a server that is down, if `skips_down`.
pub(crate) fn as_vote(limit: Duration, counts_after: Duration, skips_down: bool) -> Bounds {
    Bounds { voting: Voting { skips_down, counts_after: Some(counts_after) }, ..at_nodes(limit) }
}
