//! What it takes that a server tells of changed keys, and when all holds came into question; decides, does nothing.
//!
//! The watchdog's connection reads the keys of holds, and the server tells the listening connection what happens to
//! them next. That ends with either connection, so a connection that breaks brings all holds into question: once
//! both stand again, all are read anew.

use std::time::Duration;

use crate::error::{Error, ErrorKind};
use crate::time::Instant;

/// What there is to hear of changed keys.
#[derive(Debug)]
pub(crate) enum Ear {
    /// Messages about them arrive.
    Open {
        /// Another one after each time that the connection was made anew.
        connection: u64,
        /// By this number the server knows it, where the server says so.
        number: Option<u64>,
    },
    /// Not yet, or not at the moment.
    Closed,
    /// The server does not let us.
    Refused(Error),
}

/// What to do about all holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum All {
    /// Look whether they are still there.
    Look,
    /// Renew those that are renewed, and look at the others.
    Renew,
}

/// What is watched on one server.
#[derive(Debug)]
pub(crate) struct Watch {
    /// There are holds to be watched.
    wanted: bool,
    /// Over these the server tells of changed keys.
    tracked: Option<Pair>,
    /// For these it was asked to last.
    tried: Option<Pair>,
    /// For these the server does not let us, or cannot.
    refused: Option<Pair>,
    /// The watchdog's connection leads to a server that did not know the ear: that one is made anew, once.
    misled: bool,
    /// The watchdog's connection as it was at the last look.
    link: Option<u64>,
    /// All holds came into question.
    question: Option<All>,
    /// Since then one of the connections is missing; the answer is nearer when both are there.
    torn: Instant,
    /// Nothing is tried before this.
    not_before: Instant,
    pause: Duration,
    /// That losses are told late was said.
    complained: bool,
    /// How many holds were found gone since then.
    gone: usize,
    gone_since: Instant,
}

/// The two connections that it takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pair {
    link: u64,
    /// None where the server does not let us listen.
    ear: Option<u64>,
}

/// What to do next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Make the watchdog's connection ready.
    Open,
    /// Have the server tell the connection of this number.
    Track(u64),
    /// Losses are told late, for this reason.
    Complain(Error),
    /// Ask about all holds.
    Ask(All),
    /// Nothing, until then if nothing happens before.
    Rest(Option<Instant>),
}

impl Watch {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            wanted: false,
            tracked: None,
            tried: None,
            refused: None,
            misled: false,
            link: None,
            question: None,
            torn: now,
            not_before: now,
            pause: FIRST_PAUSE,
            complained: false,
            gone: 0,
            gone_since: now,
        }
    }

    /// There are holds to be watched.
    pub(crate) fn begin(&mut self) {
        self.wanted = true;
    }

    /// There are none any more.
    pub(crate) fn end(&mut self) {
        (self.wanted, self.tracked, self.question) = (false, None, None);
    }

    /// Whether a key that is read now is watched from then on.
    pub(crate) fn is_live(&self, link: Option<u64>) -> bool {
        self.tracked.is_some_and(|pair| Some(pair.link) == link)
    }

    /// All keys were changed or deleted.
    pub(crate) fn flushed(&mut self) {
        self.question.get_or_insert(All::Look);
    }

    /// So many holds were found gone, `of_all` in a question about all. Where memory is short, the server evicts
    /// keys also while it does what the watchdog asks, and does not tell who asked: a few losses may be many.
    /// Answers whether all came into question by that.
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

    /// The listening connection broke.
    pub(crate) fn lost(&mut self, now: Instant) {
        self.torn(now);
    }

    fn torn(&mut self, now: Instant) {
        (self.tracked, self.question, self.torn) = (None, Some(All::Renew), now);
    }

    /// What to do, with this connection of the watchdog and this ear; to be asked again until it is to ask or to rest.
    pub(crate) fn next(&mut self, now: Instant, link: Option<u64>, ear: Ear) -> Step {
        let broke = self.link.is_some() && link != self.link;
        let opened = link.is_some() && link != self.link;
        self.link = link;
        if !self.wanted {
            return Step::Rest(None);
        }
        if broke {
            self.torn(now);
        } else if opened {
            self.torn = now;
        }
        if now < self.not_before {
            return Step::Rest(Some(self.not_before));
        }
        let Some(link) = link else {
            let needed = self.question.is_some() || !matches!(ear, Ear::Closed);
            return if needed { Step::Open } else { Step::Rest(None) };
        };
        let (pair, number, error) = match ear {
            Ear::Open { connection, number } => (Pair { link, ear: Some(connection) }, number, None),
            Ear::Refused(error) => (Pair { link, ear: None }, None, Some(error)),
            Ear::Closed => return self.answer(now, now >= self.torn.after(LONGEST_REUNION)),
        };
        if self.tracked == Some(pair) || self.refused == Some(pair) {
            return self.answer(now, true);
        }
        match number {
            Some(number) => {
                self.tried = Some(pair);
                Step::Track(number)
            }
            None if self.refuse(pair) => Step::Complain(error.unwrap_or_else(without_number)),
            None => self.answer(now, true),
        }
    }

    /// Asks about all where they are in question and it is time.
    fn answer(&mut self, now: Instant, in_time: bool) -> Step {
        match self.question {
            Some(_) if !in_time => Step::Rest(Some(self.torn.after(LONGEST_REUNION))),
            Some(all) => {
                self.question = None;
                if all == All::Renew {
                    self.rest(now);
                }
                Step::Ask(all)
            }
            None => Step::Rest(None),
        }
    }

    /// The server tells from now on; what happened before may have been missed.
    pub(crate) fn tracked(&mut self) {
        (self.tracked, self.refused, self.misled) = (self.tried, None, false);
        self.question.get_or_insert(All::Look);
        self.complained = false;
    }

    /// The server does not know the ear. Answers whether that is to be made anew: not again where the new one, too,
    /// came to another server than the watchdog's connection.
    pub(crate) fn misled(&mut self, now: Instant) -> bool {
        self.rest(now);
        !std::mem::replace(&mut self.misled, true)
    }

    /// The server does not let us track; answers whether that is news.
    pub(crate) fn untracked(&mut self) -> bool {
        self.tried.is_some_and(|pair| self.refuse(pair))
    }

    fn refuse(&mut self, pair: Pair) -> bool {
        self.refused = Some(pair);
        !std::mem::replace(&mut self.complained, true)
    }

    /// The server could not be reached, or did not answer.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.rest(now);
    }

    /// All holds were asked about, which took so long: whoever flushes all the time costs a part of ours, not all.
    pub(crate) fn asked(&mut self, now: Instant, took: Duration) {
        self.not_before = self.not_before.max(now.after(took * 4));
    }

    fn rest(&mut self, now: Instant) {
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
/// After so long without a failure the next one begins anew.
const FORGOTTEN: Duration = Duration::from_secs(2);
/// So many holds that are gone within this time make the others doubtful.
const MANY: usize = 3;
const A_BURST: Duration = Duration::from_secs(1);
/// When one connection is missing for longer than this, all are asked about without it.
const LONGEST_REUNION: Duration = Duration::from_millis(500);

#[cfg(test)]
mod tests;
