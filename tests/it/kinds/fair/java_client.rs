//! A Java client as Redis sees one: the requests of Redisson's fair lock.

use super::now_ms;
use crate::support::prelude::*;

/// One thread of a Java client, as Redis sees the thread.
pub(super) struct Java<'a> {
    server: &'a RedisServer,
    name: String,
    pub(super) owner: String,
    pub(super) wait_ms: i64,
}

impl<'a> Java<'a> {
    pub(super) fn new(server: &'a RedisServer, name: &str, thread: u32) -> Self {
        let owner = format!("6f1c0d5e-8a0b-4f5e-9d3c-2b1a00c0ffee:{thread}");
        Self { server, name: name.to_owned(), owner, wait_ms: 300_000 }
    }

    /// Asks for the lock; returns how long to sleep, or `None` after a grant.
    #[track_caller]
    pub(super) fn ask(&self) -> Option<i64> {
        self.ask_as_of(0)
    }

    /// The same, by a clock that is `ms_ago` behind.
    #[track_caller]
    pub(super) fn ask_as_of(&self, ms_ago: i64) -> Option<i64> {
        let now = now_ms(self.server) - ms_ago;
        self.run(ACQUIRE, &["30000", &self.owner, &self.wait_ms.to_string(), &now.to_string()])
    }

    #[track_caller]
    pub(super) fn unlock(&self) -> Option<i64> {
        let now = now_ms(self.server).to_string();
        let channel = format!("redisson_lock__channel:{{{}}}", self.name);
        self.run(UNLOCK, &["0", "30000", &self.owner, &now, "PUBLISH", &channel])
    }

    #[track_caller]
    pub(super) fn give_up(&self, taken_ms: i64) {
        self.run(GIVE_UP, &["", &self.owner, &taken_ms.to_string()]);
    }

    /// Opens a connection that receives this waiter's messages.
    pub(super) fn listen(&self) -> redis::Connection {
        let mut connection = self.server.connection();
        let channel = format!("redisson_lock__channel:{{{}}}:{}", self.name, self.owner);
        connection.as_pubsub().subscribe(&channel).unwrap();
        connection.send_packed_command(&redis::cmd("SUBSCRIBE").arg(channel).get_packed_command()).unwrap();
        connection.recv_response().unwrap();
        connection
    }

    #[track_caller]
    fn run(&self, script: &str, arguments: &[&str]) -> Option<i64> {
        let keys = ["", "redisson_lock_queue:", "redisson_lock_timeout:"];
        let keys =
            keys.map(|prefix| if prefix.is_empty() { self.name.clone() } else { format!("{prefix}{{{}}}", self.name) });
        let mut words = vec!["EVAL", script, "3"];
        words.extend(keys.iter().map(String::as_str));
        words.extend(arguments);
        self.server.query(&words)
    }
}

/// Whether a message came.
pub(super) fn heard(connection: &mut redis::Connection) -> bool {
    connection.set_read_timeout(Some(SOON)).unwrap();
    connection.recv_response().is_ok()
}

/// `RedissonFairLock` 4.7.0: acquire, waiting form. ARGV: lease, owner, wait, now.
const ACQUIRE: &str = "
while true do
  local head = redis.call('lindex', KEYS[2], 0)
  if head == false then break end
  local score = redis.call('zscore', KEYS[3], head)
  if score ~= false and tonumber(score) <= tonumber(ARGV[4]) then
    redis.call('zrem', KEYS[3], head)
    redis.call('lpop', KEYS[2])
  else
    break
  end
end
if redis.call('exists', KEYS[1]) == 0
    and (redis.call('exists', KEYS[2]) == 0 or redis.call('lindex', KEYS[2], 0) == ARGV[2]) then
  redis.call('lpop', KEYS[2])
  redis.call('zrem', KEYS[3], ARGV[2])
  for _, member in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
    redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), member)
  end
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if redis.call('zscore', KEYS[3], ARGV[2]) ~= false then
  return math.max(0, redis.call('pttl', KEYS[1]))
end
local last = redis.call('lindex', KEYS[2], -1)
local left
if last ~= false and last ~= ARGV[2] and redis.call('zscore', KEYS[3], last) ~= false then
  left = tonumber(redis.call('zscore', KEYS[3], last)) - tonumber(ARGV[4])
else
  left = redis.call('pttl', KEYS[1])
end
if redis.call('zadd', KEYS[3], left + tonumber(ARGV[3]) + tonumber(ARGV[4]), ARGV[2]) == 1 then
  redis.call('rpush', KEYS[2], ARGV[2])
end
return left";

/// `RedissonFairLock` 4.7.0: unlock, without the latch that Java deletes at once. ARGV: message, lease, owner, now,
/// publish, channel.
const UNLOCK: &str = "
while true do
  local head = redis.call('lindex', KEYS[2], 0)
  if head == false then break end
  local score = redis.call('zscore', KEYS[3], head)
  if score ~= false and tonumber(score) <= tonumber(ARGV[4]) then
    redis.call('zrem', KEYS[3], head)
    redis.call('lpop', KEYS[2])
  else
    break
  end
end
local function notify()
  local head = redis.call('lindex', KEYS[2], 0)
  if head ~= false then redis.call(ARGV[5], ARGV[6] .. ':' .. head, ARGV[1]) end
  return 1
end
if redis.call('exists', KEYS[1]) == 0 then return notify() end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return 0
end
redis.call('del', KEYS[1])
return notify()";

/// `RedissonFairLock` 4.7.0: give up. ARGV: nothing, owner, wait.
const GIVE_UP: &str = "
local behind = false
for _, member in ipairs(redis.call('lrange', KEYS[2], 0, -1)) do
  if behind then redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), member) end
  behind = behind or member == ARGV[2]
end
redis.call('zrem', KEYS[3], ARGV[2])
redis.call('lrem', KEYS[2], 0, ARGV[2])
return nil";
