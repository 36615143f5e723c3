//! The pairing of the server's frames with requests.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::frame;
use super::request::Request;
use super::rule::Decision;

/// A reply that is still to come.
#[derive(Debug)]
pub(super) struct Awaited {
    pub(super) number: u64,
    /// The demand of a rule on the reply.
    pub(super) decision: Option<Decision>,
    /// False for the reply to a copy, because the client has not sent the copy.
    pub(super) visible: bool,
    /// If set, the server does not know the request, and these bytes are the reply.
    pub(super) canned: Option<Vec<u8>>,
    /// The part of the reply received so far: SUBSCRIBE and UNSUBSCRIBE have one frame for each channel.
    pub(super) bytes: Vec<u8>,
    command: String,
    channels: usize,
    frames_left: Option<usize>,
}

/// The meaning of a frame of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A message, or another frame without a request.
    Message,
    /// A part of the reply to the oldest request; more frames follow.
    Part,
    /// The end of the reply.
    Whole,
}

/// The replies that a connection waits for, oldest first.
#[derive(Debug, Default)]
pub(super) struct Expected {
    queue: VecDeque<Awaited>,
    /// The channels subscribed to, for each kind of subscription: `SUBSCRIBE`, `PSUBSCRIBE`, ...
    channels: BTreeMap<String, BTreeSet<Vec<u8>>>,
}

impl Expected {
    pub(super) fn push(&mut self, request: &Request, decision: Option<Decision>) -> &mut Awaited {
        self.queue.push_back(Awaited {
            number: request.number,
            decision,
            visible: true,
            canned: None,
            bytes: Vec::new(),
            command: request.command.clone(),
            channels: request.arguments.len(),
            frames_left: None,
        });
        self.queue.back_mut().expect("the request was just pushed")
    }

    pub(super) fn front(&mut self) -> Option<&mut Awaited> {
        self.queue.front_mut()
    }

    pub(super) fn pop(&mut self) -> Option<Awaited> {
        self.queue.pop_front()
    }

    /// Removes the oldest reply if the reply does not come from the server.
    pub(super) fn pop_canned(&mut self) -> Option<Awaited> {
        let canned = self.queue.front()?.canned.is_some();
        if canned { self.queue.pop_front() } else { None }
    }

    /// Removes the decisions of one rule from replies that are still to come.
    pub(super) fn release(&mut self, rule: u64) {
        for awaited in &mut self.queue {
            awaited.decision.take_if(|(id, _)| *id == rule);
        }
    }

    /// Removes all decisions from replies that are still to come.
    pub(super) fn release_all(&mut self) {
        for awaited in &mut self.queue {
            awaited.decision = None;
        }
    }

    /// Finds the meaning of a frame, and records confirmed subscriptions.
    pub(super) fn meaning(&mut self, bytes: &[u8]) -> Meaning {
        let pushed = bytes.first() == Some(&b'>');
        if !pushed && !self.may_be_message(bytes) {
            return self.reply();
        }
        let words = frame::words(bytes);
        let kind = String::from_utf8_lossy(words.first().map_or(&[][..], Vec::as_slice)).to_uppercase();
        if is_subscription(&kind) {
            self.confirm(&kind, words.get(1))
        } else if pushed || MESSAGES.contains(&kind.as_str()) {
            Meaning::Message
        } else {
            self.reply()
        }
    }

    /// In the older protocol a message looks like any array, but only subscribers get any.
    fn may_be_message(&self, bytes: &[u8]) -> bool {
        let subscribing = self.queue.front().is_some_and(|front| is_subscription(&front.command));
        let subscribed = self.channels.values().any(|channels| !channels.is_empty());
        bytes.first() == Some(&b'*') && (subscribing || subscribed)
    }

    fn reply(&mut self) -> Meaning {
        let Some(front) = self.queue.front() else {
            return Meaning::Message; // as the refusal of a client too many, sent before any request
        };
        if front.command == "RESET" {
            self.channels.clear();
        }
        Meaning::Whole
    }

    fn confirm(&mut self, kind: &str, channel: Option<&Vec<u8>>) -> Meaning {
        let family = kind.replace("UNSUB", "SUB");
        let channels = self.channels.entry(family).or_default();
        let before = channels.len();
        if let Some(channel) = channel {
            if kind.contains("UNSUB") {
                channels.remove(channel)
            } else {
                channels.insert(channel.clone())
            };
        }
        let Some(front) = self.queue.front_mut().filter(|front| front.command == kind) else {
            return Meaning::Message; // as when a slot with sharded channels moves away
        };
        let asked = if front.channels > 0 { front.channels } else { before.max(1) };
        let left = front.frames_left.get_or_insert(asked);
        *left -= 1;
        if *left == 0 { Meaning::Whole } else { Meaning::Part }
    }
}

/// Whether a command changes the subscriptions of a connection.
fn is_subscription(command: &str) -> bool {
    SUBSCRIPTIONS.contains(&command)
}

/// Whether a command makes a connection a subscriber.
pub(super) fn is_subscribe(command: &str) -> bool {
    is_subscription(command) && !command.contains("UNSUB")
}

const SUBSCRIPTIONS: [&str; 6] =
    ["SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE"];
const MESSAGES: [&str; 3] = ["MESSAGE", "PMESSAGE", "SMESSAGE"];
