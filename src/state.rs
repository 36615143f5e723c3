//! The deciding half of the engine: takes events and a time and returns what to do, without I/O, clocks or threads.

pub(crate) mod channels;
pub(crate) mod check_limiter;
pub(crate) mod counted_queue;
pub(crate) mod exchange;
#[cfg(test)]
pub(crate) mod explore;
pub(crate) mod ledger;
pub(crate) mod quorum;
pub(crate) mod renewal;
pub(crate) mod rounds;
pub(crate) mod slots;
pub(crate) mod stand_back;
pub(crate) mod wait_loop;
pub(crate) mod watch;
pub(crate) mod watch_delay;
