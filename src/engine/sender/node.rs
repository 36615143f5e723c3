//! A server as the sender sees it: since when it is mute, and what is to be cleared away there.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::conn::Server;
use crate::engine::background::Background;
use crate::error::Error;
use crate::sync::Mutex;
use crate::time::Instant;

/// A server, the callers that ask it, and the cleanup there.
pub(crate) struct Node {
    pub(crate) server: Arc<Server>,
    /// The cleanup of requests to this server; a queue for each server, so that a silent server delays no other
    /// server.
    pub(crate) cleaner: Background,
    asking: Mutex<NodeCallers>,
    /// Whether the observer knows that the server cannot wait for replicas.
    cannot_wait: AtomicBool,
}

/// The number of callers that ask the server for locks, and the start of an outage.
#[derive(Debug, Default)]
struct NodeCallers {
    under_way: usize,
    /// The start of the time without any reply.
    in_vain_since: Option<Instant>,
    /// The time when the last caller gave up.
    gave_up: Option<Instant>,
}

impl Node {
    pub(crate) fn new(server: Arc<Server>) -> Self {
        Self {
            server,
            cleaner: Background::new("lockson-cleanup", false),
            asking: Mutex::default(),
            cannot_wait: AtomicBool::new(false),
        }
    }

    /// Records that the server cannot wait for replicas. Returns whether this is new.
    pub(crate) fn cannot_wait(&self) -> bool {
        !self.cannot_wait.swap(true, Ordering::Relaxed)
    }

    /// Records that a caller asks the server. Returns the time since which all requests are unanswered.
    pub(crate) fn asking_begins(&self, now: Instant) -> Instant {
        let mut asking = self.asking.lock();
        let is_forgotten = asking.gave_up.is_none_or(|gave_up| gave_up.after(FORGOTTEN) <= now);
        if asking.under_way == 0 && is_forgotten {
            asking.in_vain_since = None;
        }
        asking.under_way += 1;
        *asking.in_vain_since.get_or_insert(now)
    }

    /// Records the end of a request, with its error if it failed. A refusal for good is a reply.
    pub(crate) fn asking_ends_with(&self, error: Option<&Error>) {
        let mut asking = self.asking.lock();
        asking.under_way = asking.under_way.saturating_sub(1);
        if !error.is_none_or(Error::is_final_refusal) {
            asking.gave_up = Some(Instant::now());
        } else if asking.under_way == 0 {
            asking.in_vain_since = None;
        } else {
            asking.in_vain_since = Some(Instant::now());
        }
    }

    /// The time since which all requests are unanswered; `None` while the server replies.
    pub(crate) fn mute_since(&self) -> Option<Instant> {
        self.asking.lock().in_vain_since
    }
}

/// The longest gap between callers within one outage. After a longer gap a new outage starts with the next request.
const FORGOTTEN: Duration = Duration::from_secs(2);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::ErrorKind;

    fn silence() -> Error {
        Error::new(ErrorKind::Connection, "silence")
    }

    fn node() -> Node {
        Node::new(Arc::new(Server::for_test("redis://127.0.0.1:1")))
    }

    #[test]
    fn a_server_that_still_answers_others_is_not_mute() {
        let node = node();
        let mut now = Instant::from_millis(1_000_000);
        let _pretence = now.pretend();
        node.asking_begins(now);
        for _ in 0..10 {
            // The next caller always starts before the previous one gives up.
            now = now.after(FORGOTTEN * 2);
            now.comes();
            node.asking_begins(now);
            node.asking_ends_with(None);
            assert_eq!(node.mute_since(), Some(now), "since the last answer");
        }
        node.asking_ends_with(None);
        assert_eq!(node.mute_since(), None);
    }

    #[test]
    fn an_outage_lasts_from_the_first_question_in_vain() {
        let node = node();
        assert_eq!(node.mute_since(), None);
        let now = Instant::now();
        node.asking_begins(now);
        node.asking_begins(now.after(Duration::from_millis(1)));
        assert_eq!(node.mute_since(), Some(now));
        node.asking_ends_with(None);
        let answered = node.mute_since().expect("one still asks");
        assert!(answered >= now);
        node.asking_ends_with(Some(&silence()));
        // Callers fail one after another: a single outage.
        let now = Instant::now();
        node.asking_begins(now);
        assert_eq!(node.mute_since(), Some(answered));
        node.asking_ends_with(Some(&silence()));
        // After a gap without callers, the time before the gap does not count.
        let later = Instant::now().after(FORGOTTEN);
        node.asking_begins(later);
        assert_eq!(node.mute_since(), Some(later));
        node.asking_ends_with(None);
        assert_eq!(node.mute_since(), None);
    }
}
