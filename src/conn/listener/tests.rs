//! Tests of the listening connection with scripted replies.
#![cfg(test)]

use super::*;
use crate::conn::scripted::{Reaction, Scripted};
use crate::sync::Mutex;

/// Makes these demands, and writes down what happens.
#[derive(Debug, Default)]
struct Script {
    demands: Mutex<VecDeque<Demand>>,
    events: Mutex<Vec<String>>,
}

impl Audience for Script {
    fn demand(&self, now: Instant) -> Demand {
        self.demands.lock().pop_front().unwrap_or_else(|| Demand::Rest(now.after(Duration::from_millis(20))))
    }

    fn handle(&self, event: ListenerEvent) {
        self.events.lock().push(match event {
            ListenerEvent::Connected(_, pub_sub) => format!("connected {pub_sub:?}"),
            ListenerEvent::Subscribed(channel) => format!("subscribed {channel}"),
            ListenerEvent::Unsubscribed(channel) => format!("unsubscribed {channel}"),
            ListenerEvent::Elsewhere(channel, refusal) => format!("{} {channel}", refusal.word()),
            ListenerEvent::Refused(channel, refusal) => format!("refused {} {channel}", refusal.word()),
            ListenerEvent::Lost(_) => "lost".to_owned(),
            event => format!("{event:?}"),
        });
    }
}

/// Listens by sharded pub/sub to a server with these replies until as many events have come, and checks the events.
#[track_caller]
fn check(demands: Vec<Demand>, reply: fn(&str) -> &'static str, events: &[&str]) {
    let server = Scripted::start(move |seen| Reaction::Reply(reply(&seen.words.join(" "))));
    let server = Arc::new(Server::choosing_for_test(&server.url(), PubSub::Sharded.into()));
    let audience = Arc::new(Script { demands: Mutex::new(demands.into()), ..Script::default() });
    let weak = Arc::downgrade(&audience) as Weak<dyn Audience>;
    let waker = listen(server, weak, Duration::from_secs(3)).unwrap();
    let end = Instant::now().after(Duration::from_secs(10));
    while audience.events.lock().len() < events.len() && Instant::now() < end {
        thread::sleep(Duration::from_millis(2));
    }
    assert_eq!(*audience.events.lock(), events);
    audience.demands.lock().push_back(Demand::Close);
    waker.wake();
}

fn texts_of(channels: &[&str]) -> Vec<String> {
    channels.iter().map(|&channel| channel.to_owned()).collect()
}

#[test]
fn each_slot_gets_a_command_and_a_reply_of_its_own() {
    let reply = |request: &str| match request {
        "SSUBSCRIBE a" => "*3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n",
        "SSUBSCRIBE b" => "-MOVED 3300 127.0.0.1:7001\r\n",
        _ => "-NOPERM no\r\n",
    };
    let demands = vec![Demand::Subscribe(PubSub::Sharded, texts_of(&["a", "b", "c"]))];
    check(demands, reply, &["connected Sharded", "subscribed a", "MOVED b", "refused NOPERM c"]);
}

#[test]
fn a_subscription_that_ends_unasked_answers_no_request() {
    let reply = |request: &str| match request {
        // The slot of `a` leaves before the server sees the second request.
        "SSUBSCRIBE a" => "*3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$12\r\nsunsubscribe\r\n$1\r\na\r\n:0\r\n",
        "SUNSUBSCRIBE b" => "*3\r\n$12\r\nsunsubscribe\r\n$1\r\nb\r\n:0\r\n",
        _ => "-NOPERM no\r\n",
    };
    let demands = vec![
        Demand::Subscribe(PubSub::Sharded, texts_of(&["a", "c"])),
        Demand::Unsubscribe(PubSub::Sharded, texts_of(&["b"])),
        Demand::Subscribe(PubSub::Sharded, texts_of(&["d"])),
    ];
    let refused = ["refused NOPERM c", "unsubscribed b", "refused NOPERM d"];
    check(demands, reply, &[&["connected Sharded", "subscribed a", "unsubscribed a"], &refused[..]].concat());
}

#[test]
fn a_sharded_message_is_a_message() {
    let reply = |_: &str| "*3\r\n$10\r\nssubscribe\r\n$1\r\na\r\n:1\r\n*3\r\n$8\r\nsmessage\r\n$1\r\na\r\n$1\r\n0\r\n";
    let message = "Message { channel: \"a\", payload: [48] }";
    let demands = vec![Demand::Subscribe(PubSub::Sharded, texts_of(&["a"]))];
    check(demands, reply, &["connected Sharded", "subscribed a", message]);
}
