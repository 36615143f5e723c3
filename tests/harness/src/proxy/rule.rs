//! The faults that the proxy applies to selected requests.

use std::time::Duration;

use super::request::{Request, When};

/// The direction of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the client to the server.
    Requests,
    /// From the server to the client.
    Replies,
    /// Both ways.
    Both,
}

/// The fault of a selected request, or of its reply.
///
/// Bytes on one connection never overtake each other: bytes behind a held or delayed request wait too, as on a real
/// connection. One rule on the request and one on the reply can act on the same request. A message of a server counts
/// as a reply.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Then {
    /// Keeps the request until the rule is released. If the client closes the connection meanwhile, the connection to
    /// the server stays open, and the request can still arrive late.
    HoldRequest,
    /// Delays the request.
    DelayRequest(Duration),
    /// Never forwards the request; later requests pass.
    SwallowRequest,
    /// Answers the request with these bytes and does not forward the request.
    AnswerInstead(Vec<u8>),
    /// Cuts the connection instead of forwarding the request.
    CutBeforeRequest,
    /// Forwards this number of bytes of the request and cuts: the server executes the request only if no byte is
    /// missing.
    CutRequestAfter(usize),
    /// Stops forwarding on the connection, from this request on, but keeps the sockets open. In the direction
    /// [`Replies`](Direction::Replies) the request still reaches the server.
    Mute(Direction),
    /// Keeps the reply until the rule is released.
    HoldReply,
    /// Delays the reply.
    DelayReply(Duration),
    /// Never forwards the reply; later replies pass.
    SwallowReply,
    /// Forwards this number of bytes of the reply and cuts. The server has executed the request.
    CutReplyAfter(usize),
    /// Forwards the reply one byte at a time, at this interval.
    SlowReply(Duration),
    /// Forwards these bytes in place of the reply.
    ReplaceReply(Vec<u8>),
    /// Inserts these bytes into the reply, after this number of bytes.
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

/// The header of a string of 2 GiB without the string, for [`Then::ReplaceReply`].
pub const HUGE_BULK_HEADER: &[u8] = b"$2147483647\r\n";

/// An installed rule.
#[derive(Debug)]
pub(super) struct Rule {
    pub(super) id: u64,
    when: When,
    then: Then,
    fitting: usize,
    /// The numbers of the requests that the rule has acted on.
    pub(super) hits: Vec<u64>,
}

/// A rule's decision: the rule's id and the fault.
pub(super) type Decision = (u64, Then);

/// All rules, in the order of creation.
#[derive(Debug, Default)]
pub(super) struct Rules {
    made: u64,
    rules: Vec<Rule>,
    /// Removed rules, so that the handles can still return the hits.
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

    /// Asks every rule about a request. Each rule counts the request; the oldest willing rule acts on the request, and
    /// the oldest willing rule acts on the reply.
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
