//! The tracking of keys: when the server reports changes of the keys of holds, and when all holds must be checked.
//!
//! The connection of the watchdog reads the keys of holds, and the server reports later changes of these keys to the
//! listening connection. Tracking ends when either connection breaks. Then all holds are in question, and are read
//! again once both connections are open.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::time::Instant;
use crate::transport::Identity;

/// The state of the listening connection, as far as changes of keys are concerned.
pub(crate) enum TrackingChannel {
    /// Messages about changed keys arrive.
    Open {
        /// Identifies the connection; a reconnect changes the number.
        connection: u64,
        /// The identity of the connection, where the server reports one.
        identity: Option<Identity>,
    },
    /// The connection is not open at the moment.
    Closed,
    /// The server refuses the subscription.
    Refused(Error),
}

/// The request about all holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AllHolds {
    /// Check whether the holds still exist.
    Look,
    /// Renew the holds that are renewed, and check the others.
    Renew,
}

/// The tracking state of one server.
#[derive(Default)]
pub(crate) struct Watch {
    /// Whether holds are to be watched.
    wanted: bool,
    /// The connections over which the server reports changes of keys.
    tracked: Option<Pair>,
    /// The connections of the last request to track.
    tried: Option<Pair>,
    /// The connections for which the server refused to track, or cannot track.
    refused: Option<Pair>,
    /// Whether the server of the watchdog did not know the listening connection: then the listening connection is
    /// replaced, once.
    wrong_server: bool,
    /// The generation of the connection of the watchdog at the last step.
    link: Option<u64>,
    /// The pending request about all holds.
    question: Option<AllHolds>,
    /// The time since which a connection is missing. A request about all holds waits a little for both connections.
    torn: Instant,
    /// The earliest time of the next attempt.
    not_before: Instant,
    /// The earliest time of the next request about all holds.
    not_asked_before: Instant,
    pause: Duration,
    /// Whether the observer was told that losses are reported late.
    complained: bool,
    /// The number of holds that were found gone since `gone_since`.
    gone: usize,
    gone_since: Instant,
}

/// The two connections that tracking needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    link: u64,
    /// `None` where the server refuses the subscription.
    channel: Option<u64>,
}

/// The next step.
#[derive(Debug)]
pub(crate) enum WatchStep {
    /// Open the connection of the watchdog.
    Open,
    /// Have the server report changes to this connection.
    Track(Identity),
    /// Tell the observer that losses are reported late, for this reason.
    Complain(Error),
    /// Send a request about all holds.
    Ask(AllHolds),
    /// Rest until this moment or the next event.
    Rest(Option<Instant>),
}

impl Watch {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            torn: now,
            not_before: now,
            not_asked_before: now,
            pause: FIRST_PAUSE,
            gone_since: now,
            ..Self::default()
        }
    }

    /// Starts to watch: the first hold exists.
    pub(crate) fn begin(&mut self) {
        self.wanted = true;
    }

    /// Ends watching: no hold is left.
    pub(crate) fn end(&mut self) {
        (self.wanted, self.tracked, self.question) = (false, None, None);
    }

    /// Whether a key that is read now is watched from then on.
    pub(crate) fn is_live(&self, link: Option<u64>) -> bool {
        self.tracked.is_some_and(|pair| Some(pair.link) == link)
    }

    /// Records that all keys were changed or deleted.
    pub(crate) fn flushed(&mut self) {
        self.question.get_or_insert(AllHolds::Look);
    }

    /// Records that `count` holds were found gone, by a request about all holds if `of_all`. When memory is full, the
    /// server evicts keys also while it runs a request of the watchdog, and does not report these changes to the
    /// sender: a few losses may stand for many. Returns whether all holds are in question now.
    pub(crate) fn found_gone(&mut self, now: Instant, count: usize, of_all: bool) -> bool {
        if self.gone_since.after(A_BURST) <= now {
            (self.gone_since, self.gone) = (now, 0);
        }
        self.gone += count;
        let many = (of_all && count > 0) || self.gone >= MANY;
        if many {
            self.gone = 0;
            self.flushed();
        }
        many
    }

    /// Records that one of the two connections broke.
    pub(crate) fn lost(&mut self, now: Instant) {
        (self.tracked, self.question, self.torn) = (None, Some(AllHolds::Renew), now);
    }

    /// Returns the next step for this connection of the watchdog and this listening connection. Called again until
    /// the step is to ask or to rest.
    pub(crate) fn next(&mut self, now: Instant, link: Option<u64>, channel: TrackingChannel) -> WatchStep {
        let broke = self.link.is_some() && link != self.link;
        let opened = link.is_some() && link != self.link;
        self.link = link;
        if !self.wanted {
            return WatchStep::Rest(None);
        }
        if broke {
            self.lost(now);
        } else if opened {
            self.torn = now;
        }
        if now < self.not_before {
            return WatchStep::Rest(Some(self.not_before));
        }
        let Some(link) = link else {
            let needed = self.question.is_some() || !matches!(channel, TrackingChannel::Closed);
            return if needed { WatchStep::Open } else { WatchStep::Rest(None) };
        };
        let (pair, identity, error) = match channel {
            TrackingChannel::Open { connection, identity } => {
                (Pair { link, channel: Some(connection) }, identity, None)
            }
            TrackingChannel::Refused(error) => (Pair { link, channel: None }, None, Some(error)),
            TrackingChannel::Closed => return self.answer(now, now >= self.torn.after(LONGEST_REUNION)),
        };
        if self.tracked == Some(pair) || self.refused == Some(pair) {
            return self.answer(now, true);
        }
        match identity {
            Some(identity) => {
                self.tried = Some(pair);
                WatchStep::Track(identity)
            }
            None if self.refuse(pair) => WatchStep::Complain(error.unwrap_or_else(without_number)),
            None => self.answer(now, true),
        }
    }

    /// Asks about all holds if they are in question and the time has come.
    fn answer(&mut self, now: Instant, in_time: bool) -> WatchStep {
        match self.question {
            Some(_) if !in_time => WatchStep::Rest(Some(self.torn.after(LONGEST_REUNION))),
            Some(_) if now < self.not_asked_before => WatchStep::Rest(Some(self.not_asked_before)),
            Some(all) => {
                self.question = None;
                if all == AllHolds::Renew {
                    self.rest(now);
                }
                WatchStep::Ask(all)
            }
            None => WatchStep::Rest(None),
        }
    }

    /// Records that tracking works from now on; earlier changes may have been missed.
    pub(crate) fn tracked(&mut self) {
        (self.tracked, self.refused, self.wrong_server) = (self.tried, None, false);
        self.question.get_or_insert(AllHolds::Look);
        self.complained = false;
    }

    /// Records that the server does not know the listening connection, or seems to be another one. Returns whether to
    /// replace the listening connection: only once, because the name may lead the two connections to different servers,
    /// or to different addresses of one.
    pub(crate) fn wrong_server(&mut self, now: Instant) -> bool {
        self.rest(now);
        !std::mem::replace(&mut self.wrong_server, true)
    }

    /// Records that the server refused to track. Returns whether the refusal is new.
    pub(crate) fn untracked(&mut self) -> bool {
        self.tried.is_some_and(|pair| self.refuse(pair))
    }

    fn refuse(&mut self, pair: Pair) -> bool {
        self.refused = Some(pair);
        !std::mem::replace(&mut self.complained, true)
    }

    /// Records the end and the duration of a request about all holds that was answered. The next request waits in
    /// proportion, so that a client that flushes all the time costs only a part of the watchdog.
    pub(crate) fn asked(&mut self, now: Instant, took: Duration) {
        self.not_asked_before = now.after((took * 4).min(LONGEST_REST));
    }

    /// Rests after an attempt, for instance where the server was not reached or did not answer.
    pub(crate) fn rest(&mut self, now: Instant) {
        if now >= self.not_before.after(FORGOTTEN) {
            self.pause = FIRST_PAUSE;
        }
        self.not_before = now.after(self.pause);
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

fn without_number() -> Error {
    Error::new(ErrorKind::Unsupported, "the server does not say the number of a connection (CLIENT ID)")
}

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_millis(300);
const LONGEST_REST: Duration = Duration::from_secs(4);
/// After this time without a failure the pauses start anew.
const FORGOTTEN: Duration = Duration::from_secs(2);
/// This number of gone holds within a burst puts all holds in question.
const MANY: usize = 3;
const A_BURST: Duration = Duration::from_secs(1);
/// The longest wait for a missing connection before a request about all holds.
const LONGEST_REUNION: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
