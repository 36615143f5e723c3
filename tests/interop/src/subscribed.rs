//! Finds out on the server whether a client listens for a name.

use std::thread;
use std::time::{Duration, Instant};

/// Waits until a channel with this name has a listener, at most for `most`. Returns whether it has one.
pub(crate) fn until_subscribed(
    redis: &mut [redis::Connection],
    question: &redis::Cmd,
    name: &str,
    most: Duration,
) -> bool {
    let end = Instant::now() + most;
    while Instant::now() < end {
        if redis.iter_mut().any(|redis| subscribed_as(redis, question, name) > 0) {
            return true;
        }
        thread::sleep(Duration::from_millis(2));
    }
    false
}

/// How many channels with this name have a listener.
pub(crate) fn subscribed(redis: &mut redis::Connection, name: &str) -> usize {
    subscribed_as(redis, redis::cmd("PUBSUB").arg("CHANNELS"), name)
}

fn subscribed_as(redis: &mut redis::Connection, question: &redis::Cmd, name: &str) -> usize {
    let channels: Vec<Vec<u8>> = question.query(redis).expect("Redis lists its channels");
    channels.iter().filter(|channel| contains(channel, name.as_bytes())).count()
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
