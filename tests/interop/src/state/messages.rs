//! All messages on a server.

use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use lockson_harness::RedisServer;

/// Listens to all channels of a server, until the server ends.
pub(crate) struct Messages {
    heard: Arc<Heard>,
    marks: u32,
}

/// Channel and message.
type Message = (Vec<u8>, Vec<u8>);

#[derive(Default)]
struct Heard {
    messages: Mutex<Vec<Message>>,
    more: Condvar,
}

impl Messages {
    pub(crate) fn listen(server: &RedisServer) -> Self {
        let client = redis::Client::open(server.url()).expect("the address is good");
        let mut connection = client.get_connection().expect("the server answers");
        let heard = Arc::new(Heard::default());
        let ours = Arc::clone(&heard);
        thread::spawn(move || {
            let mut subscription = connection.as_pubsub();
            subscription.psubscribe("*").expect("the server accepts the subscription");
            // The loop ends with the server.
            while let Ok(message) = subscription.get_message() {
                let message =
                    (message.get_channel_name().as_bytes().to_owned(), message.get_payload_bytes().to_owned());
                ours.messages.lock().unwrap_or_else(PoisonError::into_inner).push(message);
                ours.more.notify_all();
            }
        });
        Self { heard, marks: 0 }
    }

    /// The messages since the last call, in order; `redis` sends a mark that ends the list.
    pub(crate) fn take(&mut self, redis: &mut redis::Connection) -> Vec<Message> {
        self.marks += 1;
        let mark = format!("mark {}", self.marks);
        loop {
            // Before the subscription, the mark has no receiver.
            let told: i64 = redis::cmd("PUBLISH").arg(MARKS).arg(&mark).query(redis).expect("Redis answers");
            if told > 0 {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let is_mark = |(channel, message): &Message| channel == MARKS.as_bytes() && message == mark.as_bytes();
        let messages = self.heard.messages.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.heard.more.wait_timeout_while(messages, PATIENCE, |messages| !messages.iter().any(is_mark));
        let (mut messages, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let end = messages.iter().position(is_mark).expect("a message takes no seconds");
        let mut taken: Vec<Message> = messages.drain(..=end).collect();
        taken.pop();
        taken
    }
}

const MARKS: &str = "lockson-interop-marks";
const PATIENCE: Duration = Duration::from_secs(5);
