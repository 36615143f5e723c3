//! Runs requests on a test server, and reads the keys that a request leaves.
#![cfg(test)]

use lockson_harness::{RedisCluster, RedisServer};
use redis::{ConnectionLike, Value};

use super::Call;
use crate::error::{Refusal, Stop};
use crate::transport::{PubSub, Question};

/// Runs a call. Returns the word of the error where the server refuses.
pub(crate) fn run_at<T>(url: &str, call: &Call<T>) -> Result<T, String> {
    let mut connection = redis::Client::open(url).unwrap().get_connection().unwrap();
    let reply = match connection.req_packed_command(&call.packed(true, PubSub::Plain)).unwrap() {
        Value::ServerError(error) => return Err(Refusal::new(&error).word().to_owned()),
        reply => reply,
    };
    Ok(call.read(&reply).unwrap_or_else(|| panic!("a reply of unknown shape: {reply:?}")))
}

pub(crate) fn run<T>(server: &RedisServer, call: &Call<T>) -> T {
    run_at(&server.url(), call).unwrap()
}

/// Every key with its content and the time at which the key expires.
fn state(server: &RedisServer) -> Vec<(String, Vec<u8>, i64)> {
    let dump = |key: String| (server.query(&["DUMP", &key]), server.query(&["PEXPIRETIME", &key]), key);
    server.keys().into_iter().map(dump).map(|(content, expires, key)| (key, content, expires)).collect()
}

/// Runs the call and expects no change and no message.
pub(crate) fn changes_nothing<T>(server: &RedisServer, call: &Call<T>) -> T {
    let before = (state(server), server.info("rdb_changes_since_last_save"));
    let (answer, messages) = heard(server, "*", || run(server, call));
    assert_eq!((state(server), server.info("rdb_changes_since_last_save")), before);
    assert_eq!(messages, []);
    answer
}

/// Does the work, and hears what is published meanwhile on the channels of this pattern.
pub(crate) fn heard<T>(server: &RedisServer, channels: &str, work: impl FnOnce() -> T) -> (T, Vec<(String, String)>) {
    let mut connection = server.connection();
    let mut messages = connection.as_pubsub();
    messages.psubscribe(channels).unwrap();
    messages.subscribe("end of test").unwrap();
    let answer = work();
    server.run(&["PUBLISH", "end of test", ""]);
    let next = || {
        let message = messages.get_message().unwrap();
        (message.get_channel_name().to_owned(), message.get_payload().unwrap())
    };
    let heard = std::iter::repeat_with(next).take_while(|(channel, _)| channel != "end of test").collect();
    (answer, heard)
}

/// The address for a user that has these rights.
pub(crate) fn url_of_user(server: &RedisServer, rights: &[&str]) -> String {
    server.run(&[&["ACL", "SETUSER", "user", "reset", "on", "nopass", "&*"], rights].concat());
    server.url().replace("redis://", "redis://user:any@")
}

/// Runs a call of several round trips.
pub(crate) fn run_pipeline<T>(server: &RedisServer, call: &Call<T>) -> T {
    let mut connection = server.connection();
    let outcome = call.round_trips().unwrap()(
        &mut |commands| Ok(commands.iter().map(|command| connection.req_command(command).unwrap()).collect()),
        PubSub::Plain,
    );
    outcome.unwrap()
}

/// Runs a call at the master that has the slot of its key, or with `ASKING` at the master that gets the key. Returns
/// the word of the error where the master refuses.
pub(crate) fn run_at_cluster<T>(cluster: &RedisCluster, call: &Call<T>) -> Result<T, String> {
    let home = cluster.node_of(call.route().key());
    let once = |node: usize, asks: bool| {
        let mut connection = cluster.node(node).connection();
        let mut send = |commands: &[redis::Cmd]| {
            let send = |command| {
                if asks {
                    connection.req_command(&redis::cmd("ASKING")).unwrap();
                }
                connection.req_command(command).unwrap()
            };
            Ok(commands.iter().map(send).collect())
        };
        let outcome = match call.round_trips() {
            Some(round_trips) => round_trips(&mut send, PubSub::Sharded),
            None => call.run(&mut send, PubSub::Sharded),
        };
        match outcome {
            Ok(answer) => Ok(answer),
            Err(Stop::Refused(refusal)) => Err(refusal.word().to_owned()),
            Err(stop) => panic!("{stop:?}"),
        }
    };
    let others = cluster.masters().into_iter().filter(|&node| node != home);
    match once(home, false) {
        // The others answer MOVED.
        Err(word) if word == "ASK" => others
            .map(|node| once(node, true))
            .find(|answer| !matches!(answer, Err(word) if word == "MOVED"))
            .unwrap_or(Err(word)),
        answer => answer,
    }
}
