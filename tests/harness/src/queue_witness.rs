//! A witness of the order in which a fair lock is granted, from the commands that Redis executes on the queue.

use std::collections::{HashSet, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use crate::RedisServer;

/// Sees every command on one fair lock and its queue, in the order of execution by Redis.
#[derive(Debug)]
pub struct QueueWitness {
    grants: Arc<AtomicU64>,
    server: SocketAddr,
    watching: thread::JoinHandle<QueueStory>,
}

/// The observations of a [`QueueWitness`].
#[derive(Debug, Default)]
pub struct QueueStory {
    /// How often the lock was taken.
    pub grants: u64,
    /// How many joined the queue.
    pub queued: u64,
    /// Waiters that left the queue by themselves, without the lock.
    pub given_up: u64,
    /// Waiters that another client removed from the queue.
    pub purged: Vec<String>,
    /// Grants past the first of the queue, and waiters that had to join twice for one grant.
    pub inversions: Vec<String>,
    queue: VecDeque<String>,
    joined: HashSet<String>,
    granted: Option<String>,
    popped: Option<String>,
}

impl QueueWitness {
    /// Begins to watch the lock of this name, which must be unused.
    ///
    /// # Panics
    ///
    /// Panics when the server refuses to be watched.
    pub fn of(server: &RedisServer, name: &str) -> QueueWitness {
        let mut stream = TcpStream::connect(server.address()).expect("the server listens");
        stream.set_read_timeout(Some(LONGEST_SILENCE)).expect("the limit is a valid time-out");
        stream.write_all(b"MONITOR\r\n").expect("the server reads");
        let mut lines = BufReader::new(stream).lines();
        let first = lines.next().and_then(Result::ok);
        assert_eq!(first.as_deref(), Some("+OK"), "the server accepts MONITOR");
        let (hash, list) = (name.to_owned(), format!("redisson_lock_queue:{{{name}}}"));
        let grants = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&grants);
        let watching = thread::spawn(move || {
            let mut story = QueueStory::default();
            for line in lines {
                let line = line.expect("the server reports its commands");
                let words: Vec<&str> = line.split('"').skip(1).step_by(2).collect();
                match words[..] {
                    ["ECHO", END] => break,
                    // Counts only commands of scripts, because a test's own questions change nothing.
                    [command, key, ref rest @ ..] if key == hash || key == list => story.see(command, rest),
                    _ => {}
                }
                counter.store(story.grants, Ordering::Release);
            }
            story
        });
        QueueWitness { grants, server: server.address(), watching }
    }

    /// How often the lock was taken so far.
    pub fn grants(&self) -> u64 {
        self.grants.load(Ordering::Acquire)
    }

    /// Ends the watching, and returns the observations so far.
    ///
    /// # Panics
    ///
    /// Panics when the server is gone.
    pub fn end(self) -> QueueStory {
        let mut stream = TcpStream::connect(self.server).expect("the server listens");
        write!(stream, "ECHO \"{END}\"\r\n").expect("the server reads");
        self.watching.join().expect("the server went on talking")
    }
}

impl QueueStory {
    fn see(&mut self, command: &str, rest: &[&str]) {
        match (command, rest) {
            ("rpush", [owner]) => {
                self.queued += 1;
                if !self.joined.insert((*owner).to_owned()) {
                    self.inversions.push(format!("{owner} had to join again"));
                }
                self.queue.push_back((*owner).to_owned());
            }
            ("hset", [owner, "1"]) => self.grant(owner),
            ("lpop", []) => {
                self.purge_popped();
                let first = self.queue.pop_front();
                // After a grant the granted waiter leaves the queue. In Redisson's script the waiter leaves first, so
                // only the next command shows whether a removed waiter was granted or purged.
                if first != self.granted.take() {
                    self.popped = first;
                }
            }
            ("lrem", [_, owner]) => {
                let before = self.queue.len();
                self.queue.retain(|other| other != owner);
                self.joined.remove(*owner);
                self.given_up += u64::from(self.queue.len() < before);
            }
            _ => {}
        }
    }

    fn grant(&mut self, owner: &str) {
        self.grants += 1;
        self.joined.remove(owner);
        if self.popped.as_deref() == Some(owner) {
            self.popped = None;
            return;
        }
        if self.queue.front().is_some_and(|first| first != owner) {
            self.inversions.push(format!("{owner} got in before {:?}", self.queue));
        }
        self.purge_popped();
        // A waiter of Lockson leaves the queue after the grant, if the waiter was in the queue.
        self.granted = (self.queue.front().map(String::as_str) == Some(owner)).then(|| owner.to_owned());
    }

    fn purge_popped(&mut self) {
        self.purged.extend(self.popped.take());
    }
}

const END: &str = "the end";
const LONGEST_SILENCE: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    fn told(commands: &[(&str, &[&str])]) -> QueueStory {
        let mut story = QueueStory::default();
        commands.iter().for_each(|(command, rest)| story.see(command, rest));
        story
    }

    #[test]
    fn both_orders_of_taking_and_leaving_are_in_order() {
        for grant in [[("hset", &["a", "1"][..]), ("lpop", &[])], [("lpop", &[]), ("hset", &["a", "1"])]] {
            let story = told(&[&[("rpush", &["a"][..]), ("rpush", &["b"])][..], &grant].concat());
            assert!(story.inversions.is_empty() && story.purged.is_empty(), "{story:?}");
            assert_eq!((story.grants, story.queued), (1, 2));
        }
    }

    #[test]
    fn owners_may_come_again() {
        let once = [("rpush", &["a"][..]), ("lpop", &[]), ("hset", &["a", "1"])];
        let story = told(&[once, once].concat());
        assert!(story.inversions.is_empty() && story.purged.is_empty(), "{story:?}");
    }

    #[test]
    fn a_grant_past_the_first_and_a_purge_are_seen() {
        let story = told(&[("rpush", &["a"]), ("rpush", &["b"]), ("hset", &["b", "1"])]);
        assert_eq!(story.inversions.len(), 1, "{story:?}");
        let story = told(&[("rpush", &["a"]), ("rpush", &["b"]), ("lpop", &[]), ("lpop", &[]), ("hset", &["b", "1"])]);
        assert_eq!((story.purged, story.inversions.len()), (vec!["a".to_owned()], 0));
        let story = told(&[("rpush", &["a"]), ("lpop", &[]), ("rpush", &["a"])]);
        assert_eq!(story.inversions.len(), 1, "{story:?}");
        let story = told(&[("rpush", &["a"]), ("lrem", &["0", "a"]), ("rpush", &["a"])]);
        assert_eq!((story.given_up, story.inversions.len()), (1, 0), "{story:?}");
    }
}
