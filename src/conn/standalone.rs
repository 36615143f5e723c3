//! The simplest topology: one server stores every key.

use std::sync::Arc;
use std::time::Duration;

use super::server::Server;
use super::{Route, Topology};
use crate::error::Result;
use crate::reply::ask;
use crate::time::Instant;
use crate::transport::{Fault, Limits, ServerNumber};

/// One server for all keys.
pub(crate) struct Standalone(pub(crate) Arc<Server>);

impl Topology for Standalone {
    fn route(&self, _key: &[u8]) -> Route {
        Route::to(&self.0)
    }

    fn server(&self, _number: ServerNumber) -> Option<Arc<Server>> {
        Some(Arc::clone(&self.0))
    }

    fn servers(&self) -> Vec<Arc<Server>> {
        vec![Arc::clone(&self.0)]
    }

    fn greet(&self, limit: Duration) -> Result<()> {
        let limits = Limits::by(Instant::now().after(limit));
        self.0.questions(limits, |send| ask(send, redis::cmd("PING")).map(drop)).map_err(Fault::into_error)
    }

    fn close(&self) {
        self.0.close();
    }
}
