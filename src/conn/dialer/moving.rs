//! Dials a server that moves, by a dialer for each of its places.

use std::fmt;
use std::sync::{Arc, Weak};

use super::Dialer;
use crate::conn::address::Endpoint;
use crate::conn::connection::Connection;
use crate::conn::locate::{Locator, Stay};
use crate::conn::stream::Stream;
use crate::sync::Mutex;
use crate::time::Instant;
use crate::transport::Fault;

/// A server that moves.
pub(in crate::conn) struct Moving {
    locator: Locator,
    /// What tells the server from all others, without credentials and database.
    endpoint: String,
    dialer_to: Box<DialerTo>,
    /// The dialer of the last stay.
    last: Mutex<Option<(u64, Arc<Dialer>)>>,
}

type DialerTo = dyn Fn(&Endpoint) -> Dialer + Send + Sync;

impl Moving {
    /// `dialer_to` makes connections to the server at one place.
    pub(in crate::conn) fn new(
        locator: Locator,
        endpoint: String,
        dialer_to: impl Fn(&Endpoint) -> Dialer + Send + Sync + 'static,
    ) -> Self {
        Self { locator, endpoint, dialer_to: Box::new(dialer_to), last: Mutex::default() }
    }

    pub(super) fn locator(&self) -> &Locator {
        &self.locator
    }

    pub(super) fn endpoint(&self) -> &str {
        &self.endpoint
    }

    pub(super) fn dial(
        &self,
        asks_start: bool,
        deadline: Instant,
        opened: impl Fn(Weak<Stream>),
    ) -> Result<Box<Connection>, Fault> {
        self.locator.dial(deadline, |stay| {
            let dialer = self.dialer(stay);
            if asks_start {
                dialer.ask_start();
            }
            let opened = |stream: Weak<Stream>| {
                self.locator.opened(stay, Weak::clone(&stream));
                opened(stream);
            };
            let mut connection = dialer.dial_for(dialer.purpose, deadline, opened).map_err(|fault| match fault {
                Fault::Refused(refusal) if refusal.is_of_replica() => Fault::Refused(refusal.advising(NOT_MASTER)),
                fault => fault,
            })?;
            if let Some(identity) = &mut connection.identity {
                identity.stay = stay.number;
            }
            Ok(connection)
        })
    }

    fn dialer(&self, stay: &Stay) -> Arc<Dialer> {
        let mut last = self.last.lock();
        match &*last {
            Some((number, dialer)) if *number == stay.number => Arc::clone(dialer),
            _ => {
                let dialer = Arc::new((self.dialer_to)(&stay.endpoint));
                *last = Some((stay.number, Arc::clone(&dialer)));
                dialer
            }
        }
    }
}

/// The advice for a replica at the place that was told for the master.
const NOT_MASTER: &str = "the sentinels or nodes of the URL call it the master: a fail-over is under way, or SENTINEL \
                          MONITOR names a replica";

impl fmt::Debug for Moving {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Moving").field("locator", &self.locator).finish_non_exhaustive()
    }
}
