//! A server and its subscribers in virtual time: messages of each side arrive in order, late, or not at all.
#![cfg(test)]

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::*;
use crate::bell::Bell;

#[derive(Clone, Debug)]
pub(super) enum Step {
    Join(usize),
    Leave(usize),
    /// The listening thread takes the next demand.
    Look,
    /// The server takes the next request.
    Serve,
    /// The next message of the server arrives.
    Hear,
    /// Another client publishes a release.
    Publish(usize),
    /// A release of this process is about to be published, or to fail.
    Release(usize, bool),
    /// The release is published, or has failed.
    Announce,
    Lose,
    Connect,
    /// The server refuses a channel from now on, or allows it again.
    Forbid(usize, bool),
    /// The slot of a channel leaves the server, or comes back.
    Move(usize, bool),
    Pass(u64),
    /// All requests succeed for a while.
    Settle,
}

#[derive(Debug)]
enum Request {
    Subscribe(String),
    Unsubscribe(String),
}

#[derive(Debug)]
enum Word {
    Subscribed(String),
    Unsubscribed(String),
    Message(String),
    Refused(String),
    Elsewhere(String),
}

struct Waiter {
    channel: String,
    number: u64,
    bell: Bell,
}

pub(super) struct Model {
    pub(super) channels: Channels<Bell>,
    now: Instant,
    waiters: Vec<Waiter>,
    listening: bool,
    connected: bool,
    pub_sub: PubSub,
    requests: VecDeque<Request>,
    words: VecDeque<Word>,
    subscribed: BTreeSet<String>,
    forbidden: BTreeSet<String>,
    refused_ever: BTreeSet<String>,
    /// The channels whose slots other servers have.
    elsewhere: BTreeSet<String>,
    /// The number of messages that each channel may still take for own messages.
    own: BTreeMap<String, usize>,
    /// Releases in progress: the channel, whether the message is expected, and whether one will be published.
    releases: VecDeque<(String, bool, bool)>,
    idle_since: BTreeMap<String, Instant>,
    empty_since: Instant,
}

/// The last channel belongs to a single waiter.
const CHANNELS: [&str; 3] = ["a", "b", "own"];

fn subject(channel: &str) -> Subject {
    if channel == "own" { Subject::Other } else { Subject::Lock(LockName::new(channel).unwrap()) }
}

/// Wakes waiters as the hub does.
pub(super) fn ring(wakes: &[Bell]) {
    wakes.iter().for_each(Bell::ring);
}

impl Model {
    pub(super) fn new(pub_sub: PubSub) -> Self {
        let now = Instant::from_millis(1_000_000);
        Self {
            channels: Channels::default(),
            now,
            waiters: vec![],
            listening: false,
            connected: false,
            pub_sub,
            requests: VecDeque::new(),
            words: VecDeque::new(),
            subscribed: BTreeSet::new(),
            forbidden: BTreeSet::new(),
            refused_ever: BTreeSet::new(),
            elsewhere: BTreeSet::new(),
            own: BTreeMap::new(),
            releases: VecDeque::new(),
            idle_since: BTreeMap::new(),
            empty_since: now,
        }
    }

    pub(super) fn step(&mut self, step: Step) {
        match step {
            Step::Join(which) => self.join(CHANNELS[which % 3]),
            Step::Leave(which) => {
                if !self.waiters.is_empty() {
                    self.leave(which % self.waiters.len());
                }
            }
            Step::Look => self.look(),
            Step::Serve => self.serve(),
            Step::Hear => self.hear(),
            Step::Publish(which) => drop(self.publish(CHANNELS[which % 3])),
            Step::Release(which, announced) => self.release(CHANNELS[which % 3], announced),
            Step::Announce => self.announce(),
            Step::Lose => self.lose(),
            Step::Connect => {
                if self.listening && !self.connected {
                    self.connected = true;
                    self.channels.connected(self.pub_sub);
                }
            }
            Step::Forbid(which, forbidden) => {
                let channel = CHANNELS[which % 3].to_owned();
                let _ = if forbidden { self.forbidden.insert(channel) } else { self.forbidden.remove(&channel) };
            }
            Step::Move(which, away) => self.move_slot(CHANNELS[which % 3], away),
            Step::Settle => self.settle(),
            Step::Pass(millis) => self.now = self.now.after(Duration::from_millis(millis)),
        }
        for channel in CHANNELS {
            let is_subscribed = self.channels.is_subscribed(channel);
            let is_to_end = self.words.iter().any(|word| matches!(word, Word::Unsubscribed(ended) if ended == channel));
            let is_heard = self.subscribed.contains(channel) || is_to_end;
            assert!(!is_subscribed || is_heard, "{channel}: a message would be missed");
        }
    }

    fn join(&mut self, channel: &str) {
        let bell = Bell::new();
        let number = self.channels.join(&subject(channel), channel, bell.clone());
        self.waiters.push(Waiter { channel: channel.to_owned(), number, bell });
        self.listening = true;
        self.idle_since.remove(channel);
    }

    /// The server ends the subscription of a channel whose slot leaves.
    fn move_slot(&mut self, channel: &str, away: bool) {
        if self.pub_sub == PubSub::Plain {
            return;
        }
        if !away {
            self.elsewhere.remove(channel);
        } else if self.elsewhere.insert(channel.to_owned()) && self.subscribed.remove(channel) {
            self.words.push_back(Word::Unsubscribed(channel.to_owned()));
        }
    }

    fn leave(&mut self, which: usize) {
        let waiter = self.waiters.remove(which);
        self.channels.leave(&waiter.channel, waiter.number, self.now);
        if !self.waiters.iter().any(|other| other.channel == waiter.channel) {
            self.idle_since.insert(waiter.channel, self.now);
        }
    }

    /// Whether the last waiter of a channel left long enough ago.
    fn is_over(&self, channel: &str) -> bool {
        let linger = if subject(channel) != Subject::Other { CHANNEL_LINGER } else { Duration::ZERO };
        self.idle_since.get(channel).is_some_and(|since| since.after(linger) <= self.now)
    }

    pub(super) fn look(&mut self) {
        if !self.listening {
            return;
        }
        for _ in 0..100 {
            let channels = self.channels.len();
            let demand = self.channels.demand(self.now);
            if channels > 0 || !self.waiters.is_empty() {
                self.empty_since = self.now;
            }
            match demand {
                Demand::Subscribe(pub_sub, channels) => {
                    assert!(self.connected && pub_sub == self.pub_sub && !channels.is_empty());
                    self.requests.extend(channels.into_iter().map(Request::Subscribe));
                }
                Demand::Unsubscribe(pub_sub, channels) => {
                    assert!(self.connected && pub_sub == self.pub_sub && !channels.is_empty());
                    assert!(channels.iter().all(|channel| self.is_over(channel)), "unsubscribed too early");
                    self.requests.extend(channels.into_iter().map(Request::Unsubscribe));
                }
                Demand::Rest(until) => {
                    assert!(until > self.now && until <= self.now.after(CONNECTION_LINGER));
                    let lingers = |channel: &str| self.channels.is_subscribed(channel) && self.is_over(channel);
                    assert!(!self.connected || !CHANNELS.into_iter().any(lingers), "an idle channel is kept");
                    return;
                }
                Demand::Redial => panic!("the hub alone asks for that"),
                Demand::Close => {
                    assert!(self.waiters.is_empty() && self.empty_since.after(CONNECTION_LINGER) <= self.now);
                    (self.listening, self.connected) = (false, false);
                    self.requests.clear();
                    self.words.clear();
                    self.subscribed.clear();
                    return;
                }
            }
        }
        panic!("it never rests");
    }

    fn serve(&mut self) {
        match self.requests.pop_front() {
            Some(Request::Subscribe(channel)) if self.forbidden.contains(&channel) => {
                self.words.push_back(Word::Refused(channel));
            }
            Some(Request::Subscribe(channel)) if self.elsewhere.contains(&channel) => {
                self.words.push_back(Word::Elsewhere(channel));
            }
            Some(Request::Subscribe(channel)) => {
                self.subscribed.insert(channel.clone());
                self.words.push_back(Word::Subscribed(channel));
            }
            Some(Request::Unsubscribe(channel)) => {
                // Where the slot is elsewhere the server refuses, and the listener takes the refusal for a yes.
                self.subscribed.remove(&channel);
                self.words.push_back(Word::Unsubscribed(channel));
            }
            None => {}
        }
    }

    fn hear(&mut self) {
        let Some(word) = self.words.pop_front() else { return };
        self.look_at_bells();
        match word {
            Word::Subscribed(channel) => {
                let before = self.channels.is_subscribed(&channel);
                ring(&self.channels.subscribed(&channel));
                if !before && self.channels.is_subscribed(&channel) {
                    self.own.remove(&channel);
                    self.all_rung(|waiter| waiter.channel == channel);
                }
            }
            Word::Unsubscribed(channel) => {
                let before = self.channels.is_subscribed(&channel);
                ring(&self.channels.unsubscribed(&channel, self.now));
                assert!(!self.channels.is_subscribed(&channel), "{channel}: a deaf channel counts as subscribed");
                if before {
                    self.all_rung(|waiter| waiter.channel == channel);
                }
            }
            Word::Elsewhere(channel) => {
                ring(&self.channels.elsewhere(&channel, self.now));
                self.all_rung(|waiter| waiter.channel == channel);
            }
            Word::Message(channel) => {
                let known = self.channels.channels.contains_key(&channel);
                let Message { announced, wakes, .. } = self.channels.message(&channel);
                ring(&wakes);
                let own = self.own.entry(channel.clone()).or_default();
                if known && subject(&channel) != Subject::Other {
                    assert!(announced.is_some() || *own > 0, "{channel}: a foreign message was taken for our own");
                    assert!(announced.is_none() || *own == 0 || !self.channels.is_subscribed(&channel));
                }
                *own = own.saturating_sub(1);
                self.all_rung(|waiter| waiter.channel == channel);
            }
            Word::Refused(channel) => {
                let before: Vec<bool> = self.waiters.iter().map(|waiter| self.is_refused(waiter)).collect();
                ring(&self.channels.refused(&channel, Refusal::for_test("NOPERM")));
                for (waiter, before) in self.waiters.iter().zip(before) {
                    let concerned = waiter.channel == channel;
                    assert_eq!(self.is_refused(waiter), before || concerned, "a refusal tells its own waiters");
                    assert_eq!(waiter.bell.was_rung(), concerned);
                }
                self.refused_ever.insert(channel);
            }
        }
    }

    fn is_refused(&self, waiter: &Waiter) -> bool {
        self.channels.is_live(&waiter.channel).is_err()
    }

    /// Only rings from here on count.
    fn look_at_bells(&self) {
        for waiter in &self.waiters {
            waiter.bell.was_rung();
        }
    }

    fn all_rung(&self, concerned: impl Fn(&Waiter) -> bool) {
        let deaf = self.waiters.iter().find(|waiter| concerned(waiter) && !waiter.bell.was_rung());
        assert!(deaf.is_none(), "a waiter sleeps on");
    }

    fn publish(&mut self, channel: &str) -> bool {
        let told = self.subscribed.contains(channel);
        if told {
            self.words.push_back(Word::Message(channel.to_owned()));
        }
        told
    }

    fn release(&mut self, channel: &str, announced: bool) {
        let expected = self.channels.expect_own(channel);
        assert_eq!(expected, self.channels.is_subscribed(channel));
        if expected {
            *self.own.entry(channel.to_owned()).or_default() += 1;
        }
        self.releases.push_back((channel.to_owned(), expected, announced));
    }

    fn announce(&mut self) {
        let Some((channel, expected, announced)) = self.releases.pop_front() else { return };
        let told = announced && self.publish(&channel);
        if expected && !told {
            self.channels.unexpect_own(&channel);
            let own = self.own.entry(channel).or_default();
            *own = own.saturating_sub(1);
        }
    }

    fn lose(&mut self) {
        if self.listening {
            self.look_at_bells();
            ring(&self.channels.lost());
            self.connected = false;
            self.requests.clear();
            self.words.clear();
            self.subscribed.clear();
            self.all_rung(|_| true);
        }
    }

    /// All requests are answered.
    pub(super) fn settle(&mut self) {
        if !self.listening {
            return;
        }
        self.step(Step::Connect);
        self.answer_all();
        // Slots that were elsewhere are asked for again.
        self.now = self.now.after(ELSEWHERE_PAUSE);
        self.answer_all();
        for waiter in &self.waiters {
            let channel = &waiter.channel;
            let refused = self.is_refused(waiter) && self.refused_ever.contains(channel);
            let excused = refused || self.elsewhere.contains(channel);
            assert!(self.channels.is_subscribed(channel) || excused, "{channel} has a waiter and is not listened to");
        }
    }

    fn answer_all(&mut self) {
        self.look();
        while !self.requests.is_empty() || !self.words.is_empty() {
            while !self.requests.is_empty() || !self.words.is_empty() {
                self.step(Step::Serve);
                self.step(Step::Hear);
            }
            self.look();
        }
    }

    /// All waiters leave, and some time later no channel is left.
    pub(super) fn end(&mut self) {
        while !self.waiters.is_empty() {
            self.leave(0);
        }
        self.settle();
        self.step(Step::Pass(1_000));
        self.settle();
        assert_eq!(self.channels.len(), 0, "{:?}", self.channels);
        assert!(self.subscribed.is_empty());
        self.step(Step::Pass(3_000));
        self.look();
        assert!(!self.listening, "the connection is closed after the last channel");
    }
}
