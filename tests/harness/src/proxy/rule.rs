//! What the proxy does to the requests that a test picks.

use std::time::Duration;

use super::request::{Request, When};

/// Which way bytes go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Replies,
    /// Both ways.
    Both,
}

/// What happens to a picked request, or to its reply.
///
/// Bytes on one connection never overtake each other: what comes behind something held or delayed
/// waits too, as it would on a wire. One rule on the request and one on its reply can act on the
/// same request. A message of a server counts as a reply.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Then {
    /// Keeps the request until the rule is released. Should the client close its connection
    /// meanwhile, the one to the server stays open, and the request can still arrive there late.
    HoldRequest,
    /// Keeps the request for this long.
    DelayRequest(Duration),
    /// Never forwards this request; later ones pass.
    SwallowRequest,
    /// Answers the request with these bytes and does not forward it.
    AnswerInstead(Vec<u8>),
    /// Cuts the connection instead of forwarding the request.
    CutBeforeRequest,
    /// Forwards this many bytes of the request and cuts: it is executed only if these are all.
    CutRequestAfter(usize),
    /// Stops forwarding on this connection, from this request on, but keeps its sockets open. In
    /// the direction [`Replies`](Direction::Replies) the request still reaches the server.
    Mute(Direction),
    /// Keeps the reply until the rule is released.
    HoldReply,
    /// Keeps the reply for this long.
    DelayReply(Duration),
    /// Never forwards the reply; later ones pass.
    SwallowReply,
    /// Forwards this many bytes of the reply and cuts. The request was executed.
    CutReplyAfter(usize),
    /// Forwards the reply one byte at a time, at this interval.
    SlowReply(Duration),
    /// Forwards these bytes in place of the reply.
    ReplaceReply(Vec<u8>),
    /// Forwards the reply with these bytes in it, after this many of its own.
    InsertIntoReply(usize, Vec<u8>),
}

impl Then {
    pub(super) fn is_for_replies(&self) -> bool {
        matches!(
            self,
            Then::HoldReply
                | Then::DelayReply(_)
                | Then::SwallowReply
                | Then::CutReplyAfter(_)
                | Then::SlowReply(_)
                | Then::ReplaceReply(_)
                | Then::InsertIntoReply(..)
        )
    }
}

/// The header of a string of 2 GiB that never comes, for [`Then::ReplaceReply`].
pub const HUGE_BULK_HEADER: &[u8] = b"$2147483647\r\n";

/// An installed rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) id: u64,
    when: When,
    then: Then,
    fitting: usize,
    /// The numbers of the requests it has acted on.
    pub(super) hits: Vec<u64>,
}

/// What a rule decided: its id and what to do.
pub(super) type Decision = (u64, Then);

/// All rules, in the order of their making.
#[derive(Debug, Default)]
pub(super) struct Rules {
    made: u64,
    rules: Vec<Rule>,
    /// What removed rules had hit, so that their handles can still tell.
    removed: Vec<Rule>,
}

impl Rules {
    pub(super) fn add(&mut self, when: When, then: Then) -> u64 {
        let id = self.made;
        self.made += 1;
        self.rules.push(Rule { id, when, then, fitting: 0, hits: Vec::new() });
        id
    }

    pub(super) fn remove(&mut self, id: u64) {
        let (removed, kept) = self.rules.drain(..).partition(|rule| rule.id == id);
        self.rules = kept;
        self.removed.extend::<Vec<Rule>>(removed);
    }

    pub(super) fn remove_all(&mut self) {
        self.removed.append(&mut self.rules);
    }

    pub(super) fn hits(&self, id: u64) -> &[u64] {
        let mut all = self.rules.iter().chain(&self.removed);
        all.find(|rule| rule.id == id).map_or(&[], |rule| &rule.hits)
    }

    /// Asks every rule about a request. Each counts it; the oldest willing one acts on the request,
    /// and the oldest willing one acts on its reply.
    pub(super) fn decide(&mut self, request: &Request) -> (Option<Decision>, Option<Decision>) {
        let (mut on_request, mut on_reply) = (None, None);
        for rule in &mut self.rules {
            if !rule.when.fits(request) {
                continue;
            }
            rule.fitting += 1;
            let slot = if rule.then.is_for_replies() { &mut on_reply } else { &mut on_request };
            let willing = rule.fitting > rule.when.skipped && rule.hits.len() < rule.when.times;
            if willing && slot.is_none() {
                rule.hits.push(request.number);
                *slot = Some((rule.id, rule.then.clone()));
            }
        }
        (on_request, on_reply)
    }
}
