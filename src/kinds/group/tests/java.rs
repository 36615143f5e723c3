//! A client that runs the scripts of Redisson's group lock, by the wire document.
#![cfg(test)]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use lockson_harness::RedisServer;

/// One thread of a Java client, as Redis sees the thread.
pub(super) struct Java<'a> {
    pub(super) server: &'a RedisServer,
    pub(super) group: &'a str,
    pub(super) owner: &'static str,
    /// The clock of Java's machine minus the clock of the server, ms.
    pub(super) ahead_ms: i64,
}

impl<'a> Java<'a> {
    pub(super) fn new(server: &'a RedisServer, group: &'a str) -> Self {
        Self { server, group, owner: "0b8e6c3e-6ea5-44ac-a1f8-0d3e2f0a0b01:42", ahead_ms: 0 }
    }

    /// Takes all values; otherwise the time to wait.
    pub(super) fn lock(&self, lease_ms: u64, fields: &[&str]) -> Option<i64> {
        self.run(LOCK, &[self.group], &[&[&*lease_ms.to_string(), &self.now(), self.owner], fields].concat())
    }

    /// 1 = all released, 0 = hold counts are left, nothing = not held.
    pub(super) fn unlock(&self, fields: &[&str]) -> Option<i64> {
        let now = self.now();
        let arguments = [&[self.owner, "0", "30000", "PUBLISH", &now], fields].concat();
        self.run(UNLOCK, &[self.group, &self.channel()], &arguments)
    }

    /// Whether the watchdog of Java finds all values held.
    pub(super) fn renew(&self, lease_ms: u64, fields: &[&str]) -> bool {
        self.run(RENEW, &[self.group], &[&[&*lease_ms.to_string(), &self.now(), self.owner], fields].concat())
            == Some(1)
    }

    pub(super) fn force_unlock(&self, field: &str) -> Option<i64> {
        self.run(FORCE_UNLOCK, &[self.group, &self.channel()], &["0", "PUBLISH", field])
    }

    pub(super) fn is_locked(&self, field: &str) -> bool {
        self.run(IS_LOCKED, &[self.group], &[&self.now(), field]) == Some(1)
    }

    fn channel(&self) -> String {
        format!("redisson_lock__channel:{{{}}}", self.group)
    }

    /// The clock of Java's machine.
    fn now(&self) -> String {
        let now: Duration = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
        (i64::try_from(now.as_millis()).unwrap() + self.ahead_ms).to_string()
    }

    fn run(&self, script: &str, keys: &[&str], arguments: &[&str]) -> Option<i64> {
        let count = keys.len().to_string();
        let words: Vec<&str> = ["EVAL", script, &count].iter().chain(keys).chain(arguments).copied().collect();
        self.server.query(&words)
    }
}

/// `RedissonFasterMultiLock` 4.7.0: acquire of a call that waits.
const LOCK: &str = "
local key, lease, now, owner = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
local existed = redis.call('exists', key) == 1
local latest = -1
for i = 4, #ARGV do
  local holder = redis.call('hget', key, ARGV[i])
  if holder and holder ~= owner then
    local deadline = redis.call('hget', key, ARGV[i] .. ':' .. holder .. ':expire_time')
    if tonumber(deadline) > now then latest = math.max(latest, tonumber(deadline)) end
  end
end
if latest >= 0 then return latest - now end
for i = 4, #ARGV do
  redis.call('hset', key, ARGV[i], owner)
  local expiry = ARGV[i] .. ':' .. owner .. ':expire_time'
  local deadline = redis.call('hget', key, expiry)
  if not deadline or tonumber(deadline) < now + lease then redis.call('hset', key, expiry, now + lease) end
  redis.call('hincrby', key, ARGV[i] .. ':' .. owner .. ':lock_count', 1)
end
if not existed then
  redis.call('pexpire', key, lease)
else
  local ttl = redis.call('pttl', key)
  if ttl > 0 and lease > ttl then redis.call('pexpire', key, lease) end
end
return nil";

/// `RedissonFasterMultiLock` 4.7.0: unlock, without the latch that Java deletes at once.
const UNLOCK: &str = "
local key, owner, message, lease, publish, now = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), ARGV[4], tonumber(ARGV[5])
if redis.call('exists', key) == 0 then
  redis.call(publish, KEYS[2], message)
  return nil
end
local held, released = 0, 0
for i = 6, #ARGV do
  local hold = ARGV[i] .. ':' .. owner
  local deadline = redis.call('hget', key, hold .. ':expire_time')
  if deadline and tonumber(deadline) >= now then
    held = held + 1
    if redis.call('hincrby', key, hold .. ':lock_count', -1) <= 0 then
      released = released + 1
      redis.call('hdel', key, ARGV[i], hold .. ':expire_time', hold .. ':lock_count')
    elseif tonumber(deadline) < now + lease then
      redis.call('hset', key, hold .. ':expire_time', now + lease)
    end
  end
end
if held < #ARGV - 5 then return nil end
redis.call(publish, KEYS[2], message)
if released == held then return 1 end
if lease > redis.call('pttl', key) then redis.call('pexpire', key, lease) end
return 0";

/// `FastMultilockTask` 4.7.0.
const RENEW: &str = "
local key, lease, now, owner = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2]), ARGV[3]
if redis.call('exists', key) == 0 then return 0 end
for i = 4, #ARGV do
  if redis.call('hget', key, ARGV[i]) ~= owner then return 0 end
  local expiry = ARGV[i] .. ':' .. owner .. ':expire_time'
  if tonumber(redis.call('hget', key, expiry)) < now + lease then redis.call('hset', key, expiry, now + lease) end
end
if redis.call('pttl', key) < lease then redis.call('pexpire', key, lease) end
return 1";

/// `RedissonFasterMultiLock` 4.7.0: forceUnlock.
const FORCE_UNLOCK: &str = "
local removed = 0
for i = 3, #ARGV do
  local hold = ARGV[i] .. ':' .. redis.call('hget', KEYS[1], ARGV[i])
  removed = removed + redis.call('hdel', KEYS[1], ARGV[i])
  redis.call('hdel', KEYS[1], hold .. ':expire_time', hold .. ':lock_count')
end
redis.call(ARGV[2], KEYS[2], ARGV[1])
return removed";

/// `RedissonFasterMultiLock` 4.7.0: isLocked.
const IS_LOCKED: &str = "
for i = 2, #ARGV do
  local holder = redis.call('hget', KEYS[1], ARGV[i])
  local deadline = holder and redis.call('hget', KEYS[1], ARGV[i] .. ':' .. holder .. ':expire_time')
  if deadline and tonumber(deadline) >= tonumber(ARGV[1]) then return 1 end
end
return 0";
