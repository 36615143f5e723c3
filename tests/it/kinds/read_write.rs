//! The special property of the read-write lock: two sides of one name.

mod leases;
mod outlived;
mod sharing;
mod sides;
mod state;

use crate::support::prelude::*;
use crate::support::read_write_channel as channel;

/// The read side and the write side of a name.
fn sides(client: &Client, name: &str) -> (Lock, Lock) {
    let both = client.get_read_write_lock(name);
    (both.read(), both.write())
}

/// The fields of a name in Redis.
#[track_caller]
fn state(server: &RedisServer, name: &str) -> BTreeMap<String, String> {
    server.query(&["HGETALL", name])
}

/// The expected state.
fn is(fields: &[(&str, usize)], mode: &str) -> BTreeMap<String, String> {
    let counts = fields.iter().map(|(field, count)| ((*field).to_owned(), count.to_string()));
    counts.chain([("mode".to_owned(), mode.to_owned())]).collect()
}

/// The key of one read hold.
fn hold_key(name: &str, owner: &str, number: usize) -> String {
    let tagged = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
    format!("{tagged}:{owner}:rwlock_timeout:{number}")
}
