//! The queues of threads that wait for a part of a count, and the messages that wake them.

use crate::bell::Bell;
use crate::state::counted_queue::CountedQueues;
use crate::sync::Mutex;

/// The queues of one client.
#[derive(Debug, Default)]
pub(crate) struct Queues(Mutex<CountedQueues<Bell>>);

/// The place of a thread in a queue; dropping it leaves the queue.
#[derive(Debug)]
pub(crate) struct Position<'a> {
    queues: &'a Queues,
    channel: String,
    number: u64,
    /// What the last answer left, if messages were heard while the thread asked.
    left: Option<i64>,
}

impl Queues {
    pub(crate) fn join(&self, channel: &str, wish: u32, bell: &Bell) -> Position<'_> {
        let number = self.0.lock().join(channel, wish, bell.clone());
        Position { queues: self, channel: channel.to_owned(), number, left: None }
    }

    /// Takes a message. A payload that is no number wakes those who may ask anyway.
    pub(crate) fn message(&self, channel: &str, payload: &[u8]) {
        let free = std::str::from_utf8(payload).ok().and_then(|text| text.parse().ok());
        match free {
            Some(free) => self.free(channel, free),
            None => self.hint(channel),
        }
    }

    /// Wakes those who may ask, because something may be free.
    pub(crate) fn hint(&self, channel: &str) {
        let wakes = self.0.lock().hint(channel);
        wakes.iter().for_each(Bell::ring);
    }

    /// Wakes in order those that want at most what is left of `free`.
    pub(crate) fn free(&self, channel: &str, free: i64) {
        let wakes = self.0.lock().free(channel, free);
        wakes.iter().for_each(Bell::ring);
    }
}

impl Position<'_> {
    pub(crate) fn may_ask(&self) -> bool {
        self.queues.0.lock().may_ask(&self.channel, self.number)
    }

    pub(crate) fn asks(&mut self) {
        self.left = None;
        self.queues.0.lock().asks(&self.channel, self.number);
    }

    /// Takes the answer "busy".
    pub(crate) fn answered(&self, free: i64) {
        let wakes = self.queues.0.lock().answered(&self.channel, self.number, free);
        wakes.iter().for_each(Bell::ring);
    }

    /// Takes a grant that left `free`. With `heard`, no message after the answer is missed, so nobody need ask again.
    pub(crate) fn granted(&mut self, free: i64, heard: bool) {
        self.left = heard.then_some(free);
    }
}

impl Drop for Position<'_> {
    fn drop(&mut self) {
        let wakes = self.queues.0.lock().leave(&self.channel, self.number, self.left);
        wakes.iter().for_each(Bell::ring);
    }
}
