//! Beside a client that runs Redisson's scripts, by the wire document: the same readers, the same writer.

use std::thread;
use std::time::Instant;

use lockson_harness::{RedisServer, eventually};

use super::{channel, hold_key, is, is_free, sides, state};
use crate::support::{SCHEDULING, SOON, client, fresh, handed_over, joined, ms, ttl_ms};

#[test]
fn readers_of_java_and_ours_leave_each_other_alone() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (read, write) = sides(&client(), &name);
    let java = Java::new(&name, 1);
    // Java takes first, Lockson releases first.
    assert_eq!(java.read(20_000), None);
    let reading = read.lock().unwrap();
    let owner = reading.owner().to_owned();
    assert_eq!(java.read(20_000), None, "Java re-enters");
    assert_eq!(state(server, &name), is(&[(&java.owner, 2), (&owner, 1)], "read"));
    reading.unlock().unwrap();
    assert_eq!(state(server, &name), is(&[(&java.owner, 2)], "read"));
    assert!((15_000..=20_000).contains(&ttl_ms(server, &name)), "the time that Java needs");
    assert!((1..=2).all(|number| ttl_ms(server, &hold_key(&name, &java.owner, number)) > 15_000));
    assert!(java.write(1_000).is_some() && !is_free(&write));
    assert_eq!([java.unlock_read(), java.unlock_read()], [Some(0), Some(1)]);
    assert!(is_free(&write));

    // Lockson takes first, Java releases first: Java believes in holds whose keys exist.
    let reading = [read.lock().unwrap(), read.with_lease(ms(60_000)).lock().unwrap()];
    let owner = reading[0].owner().to_owned();
    assert_eq!(java.read(90_000), None);
    assert_eq!(java.unlock_read(), Some(0), "another owner reads on");
    assert_eq!(state(server, &name), is(&[(&owner, 2)], "read"));
    assert!((55_000..=60_000).contains(&ttl_ms(server, &name)), "the time that Lockson's holds need");
    drop(reading);
    assert_eq!(ttl_ms(server, &name), -2);
}

#[test]
fn a_writer_of_java_excludes_all_and_wakes_all_readers() {
    let server = RedisServer::start();
    let clients = [(); 2].map(|()| lockson::Client::connect(&server.url()).unwrap());
    let java = Java { server: Some(&server), ..Java::new("job", 1) };
    assert_eq!(java.write(30_000), None);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..6)
            .map(|number| {
                let read = sides(&clients[number % 2], "job").0;
                scope.spawn(move || {
                    let _guard = read.lock().unwrap();
                    Instant::now()
                })
            })
            .collect();
        eventually(SOON, "both clients listen", || server.subscribers(&channel("job")) == 2);
        assert!(!is_free(&sides(&clients[0], "job").1));
        let left = Instant::now();
        assert_eq!(java.unlock_write(), Some(1));
        let last = readers.into_iter().map(joined).max().unwrap();
        assert!(last - left <= SCHEDULING, "{:?}", last - left);
    });
    assert!(server.keys().is_empty());
}

#[test]
fn java_stepping_down_in_silence_lets_ours_in_within_a_second() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let read = sides(&client(), &name).0;
    let java = Java::new(&name, 1);
    assert_eq!(java.write(30_000), None);
    assert_eq!(java.read(30_000), None);
    let listens = || eventually(SOON, "it listens", || server.subscribers(&channel(&name)) > 0);
    let waited = handed_over(&read, listens, || assert_eq!(java.unlock_write(), Some(1)));
    assert!(waited <= ms(1_000) + SCHEDULING, "{waited:?}");
    assert_eq!(state(server, &name), is(&[(&java.owner, 1)], "read"));
    assert_eq!(java.unlock_read(), Some(1));
}

#[test]
fn java_hears_when_ours_leave() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (read, write) = sides(&client(), &name);
    let [java, other] = [1, 2].map(|thread| Java::new(&name, thread));
    let mut stranger = server.connection();
    let mut messages = stranger.as_pubsub();
    messages.subscribe(channel(&name)).unwrap();
    let mut next = || messages.get_message().unwrap().get_payload::<String>().unwrap();

    let reading = read.lock().unwrap();
    let waits = java.write(30_000).expect("ours read");
    assert!((25_000..=30_000).contains(&waits));
    reading.unlock().unwrap();
    assert_eq!(next(), "0");
    assert_eq!(java.write(30_000), None);
    assert_eq!(java.unlock_write(), Some(1));
    assert_eq!(next(), "1");

    let (writing, reading) = (write.lock().unwrap(), read.lock().unwrap());
    assert!(java.read(30_000).is_some() && java.write(30_000).is_some());
    writing.unlock().unwrap();
    assert_eq!(next(), "1", "readers may be granted");
    assert_eq!([java.read(30_000), other.read(30_000)], [None, None]);
    reading.unlock().unwrap();
    assert_eq!([java.unlock_read(), other.unlock_read()], [Some(0), Some(1)]);
    assert_eq!(next(), "0");
}

#[test]
fn a_dead_reader_of_java_blocks_no_other_owner() {
    let (server, name) = (RedisServer::shared(), fresh("rw"));
    let (read, write) = sides(&client(), &name);
    let dead = Java::new(&name, 1);
    assert_eq!(dead.read(2_000), None);
    let reading = read.lock().unwrap();
    eventually(SOON, "the time to live is over", || ttl_ms(server, &hold_key(&name, &dead.owner, 1)) == -2);
    assert!(state(server, &name).contains_key(&dead.owner));
    reading.unlock().unwrap();
    assert!(is_free(&write));
}

/// One thread of a Java client, as Redis sees the thread.
struct Java<'a> {
    /// The shared server if `None`.
    server: Option<&'a RedisServer>,
    name: String,
    owner: String,
}

impl Java<'_> {
    fn new(name: &str, thread: u32) -> Self {
        let owner = format!("6f1c0d5e-8a0b-4f5e-9d3c-2b1a00c0ffee:{thread}");
        Self { server: None, name: name.to_owned(), owner }
    }

    /// Returns `None` after a grant, or how long to wait.
    #[track_caller]
    fn read(&self, lease_ms: u32) -> Option<i64> {
        let holds = self.holds();
        let lease = lease_ms.to_string();
        self.run(READ, &[&self.name, &holds], &[&lease, &self.owner, &self.writer()])
    }

    #[track_caller]
    fn write(&self, lease_ms: u32) -> Option<i64> {
        self.run(WRITE, &[&self.name], &[&lease_ms.to_string(), &self.writer()])
    }

    #[track_caller]
    fn unlock_read(&self) -> Option<i64> {
        let (holds, prefix) = (self.holds(), format!("{{{}}}", self.name));
        self.run(UNLOCK_READ, &[&self.name, &channel(&self.name), &holds, &prefix], &["0", &self.owner, "PUBLISH"])
    }

    #[track_caller]
    fn unlock_write(&self) -> Option<i64> {
        self.run(UNLOCK_WRITE, &[&self.name, &channel(&self.name)], &["1", "30000", &self.writer(), "PUBLISH"])
    }

    fn holds(&self) -> String {
        format!("{{{}}}:{}:rwlock_timeout", self.name, self.owner)
    }

    fn writer(&self) -> String {
        format!("{}:write", self.owner)
    }

    #[track_caller]
    fn run(&self, script: &str, keys: &[&str], arguments: &[&str]) -> Option<i64> {
        let count = keys.len().to_string();
        let words: Vec<&str> = ["EVAL", script, &count].iter().chain(keys).chain(arguments).copied().collect();
        self.server.unwrap_or_else(|| RedisServer::shared()).query(&words)
    }
}

/// `RedissonReadLock` 4.7.0: acquire.
const READ: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'read')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('set', KEYS[2] .. ':1', 1)
  redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if mode == 'read' or (mode == 'write' and redis.call('hexists', KEYS[1], ARGV[3]) == 1) then
  local n = redis.call('hincrby', KEYS[1], ARGV[2], 1)
  local key = KEYS[2] .. ':' .. n
  redis.call('set', key, 1)
  redis.call('pexpire', key, ARGV[1])
  redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1]))
  return nil
end
return redis.call('pttl', KEYS[1])";

/// `RedissonWriteLock` 4.7.0: acquire.
const WRITE: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call('hset', KEYS[1], 'mode', 'write')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";

/// `RedissonReadLock` 4.7.0: unlock, without the latch that Java deletes at once.
const UNLOCK_READ: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call(ARGV[3], KEYS[2], ARGV[1])
  return nil
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then return nil end
local count = redis.call('hincrby', KEYS[1], ARGV[2], -1)
if count == 0 then redis.call('hdel', KEYS[1], ARGV[2]) end
redis.call('del', KEYS[3] .. ':' .. (count + 1))
if redis.call('hlen', KEYS[1]) > 1 then
  local longest = -3
  for _, field in ipairs(redis.call('hkeys', KEYS[1])) do
    local holds = tonumber(redis.call('hget', KEYS[1], field))
    if type(holds) == 'number' then
      for i = holds, 1, -1 do
        longest = math.max(longest, redis.call('pttl', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. i))
      end
    end
  end
  if longest > 0 then
    redis.call('pexpire', KEYS[1], longest)
    return 0
  end
  if mode == 'write' then return 0 end
end
redis.call('del', KEYS[1])
redis.call(ARGV[3], KEYS[2], ARGV[1])
return 1";

/// `RedissonWriteLock` 4.7.0: unlock, without the latch.
const UNLOCK_WRITE: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == false then
  redis.call(ARGV[4], KEYS[2], ARGV[1])
  return nil
end
if mode ~= 'write' or redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('hdel', KEYS[1], ARGV[3])
if redis.call('hlen', KEYS[1]) == 1 then
  redis.call('del', KEYS[1])
  redis.call(ARGV[4], KEYS[2], ARGV[1])
else
  redis.call('hset', KEYS[1], 'mode', 'read')
end
return 1";
