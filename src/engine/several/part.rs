//! One lock of several, on its way.

use std::sync::Arc;

use crate::engine::Engine;
use crate::engine::request::AcquireRequest;

/// One lock of several, with its client and its request.
pub(crate) struct Part<'a> {
    pub(crate) engine: &'a Arc<Engine>,
    pub(crate) request: AcquireRequest<'a>,
}
