//! What the scripts of Redisson 4.7 do, in words of ours.

/// KEYS lock; ARGV lease, owner. Replies nil when granted, else the time to live.
pub const LOCK: &str = "
if redis.call('exists', KEYS[1]) == 0 or redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
return redis.call('pttl', KEYS[1])";

/// KEYS lock, channel, latch; ARGV message, lease, owner, time to live of the latch.
pub const UNLOCK: &str = "
local done = redis.call('get', KEYS[3])
if done then return tonumber(done) end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[3], 0, 'px', ARGV[4])
  return 0
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
redis.call('set', KEYS[3], 1, 'px', ARGV[4])
return 1";

/// KEYS lock; ARGV lease, owner.
pub const RENEW: &str = "
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('pexpire', KEYS[1], ARGV[1])
  return 1
end
return 0";

/// The waiters whose time is over leave the queue.
macro_rules! purging {
    ($now:literal, $rest:literal) => {
        concat!(
            "
while true do
  local head = redis.call('lindex', KEYS[2], 0)
  local ends = head and redis.call('zscore', KEYS[3], head)
  if not ends or tonumber(ends) > tonumber(",
            $now,
            ") then break end
  redis.call('zrem', KEYS[3], head)
  redis.call('lpop', KEYS[2])
end",
            $rest
        )
    };
}

/// KEYS lock, queue, deadlines; ARGV lease, owner, wait, now.
pub const LOCK_FAIR: &str = purging!(
    "ARGV[4]",
    "
local head = redis.call('lindex', KEYS[2], 0)
if redis.call('exists', KEYS[1]) == 0 and (not head or head == ARGV[2]) then
  redis.call('lpop', KEYS[2])
  redis.call('zrem', KEYS[3], ARGV[2])
  for _, waiter in ipairs(redis.call('zrange', KEYS[3], 0, -1)) do
    redis.call('zincrby', KEYS[3], -tonumber(ARGV[3]), waiter)
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
if redis.call('zscore', KEYS[3], ARGV[2]) then
  return math.max(0, redis.call('pttl', KEYS[1]))
end
local last = redis.call('lindex', KEYS[2], -1)
local ends = last and last ~= ARGV[2] and redis.call('zscore', KEYS[3], last)
local left = ends and tonumber(ends) - tonumber(ARGV[4]) or redis.call('pttl', KEYS[1])
if redis.call('zadd', KEYS[3], left + tonumber(ARGV[3]) + tonumber(ARGV[4]), ARGV[2]) == 1 then
  redis.call('rpush', KEYS[2], ARGV[2])
end
return left"
);

/// KEYS queue, deadlines; ARGV owner, wait.
pub const GIVE_UP_FAIR: &str = "
local waiters = redis.call('lrange', KEYS[1], 0, -1)
local is_behind = false
for _, waiter in ipairs(waiters) do
  if is_behind then redis.call('zincrby', KEYS[2], -tonumber(ARGV[2]), waiter) end
  is_behind = is_behind or waiter == ARGV[1]
end
redis.call('zrem', KEYS[2], ARGV[1])
redis.call('lrem', KEYS[1], 0, ARGV[1])";

/// KEYS lock, queue, deadlines, channel, latch; ARGV message, lease, owner, time to live of the latch, now.
pub const UNLOCK_FAIR: &str = purging!(
    "ARGV[5]",
    "
local function notify()
  local head = redis.call('lindex', KEYS[2], 0)
  if head then redis.call('publish', KEYS[4] .. ':' .. head, ARGV[1]) end
  redis.call('set', KEYS[5], 1, 'px', ARGV[4])
  return 1
end
if redis.call('exists', KEYS[1]) == 0 then return notify() end
if redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  redis.call('set', KEYS[5], 0, 'px', ARGV[4])
  return 0
end
redis.call('del', KEYS[1])
return notify()"
);

/// KEYS lock, prefix of the keys of this owner's holds; ARGV lease, owner.
pub const LOCK_READ: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  redis.call('hset', KEYS[1], 'mode', 'read')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('set', KEYS[2] .. ':1', 1)
  redis.call('pexpire', KEYS[2] .. ':1', ARGV[1])
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if mode == 'read' or redis.call('hexists', KEYS[1], ARGV[2] .. ':write') == 1 then
  local key = KEYS[2] .. ':' .. redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('set', key, 1)
  redis.call('pexpire', key, ARGV[1])
  redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[1]))
  return nil
end
return redis.call('pttl', KEYS[1])";

/// KEYS lock, channel, prefix of the keys of this owner's holds, prefix of those of all, latch; ARGV message, owner, time
/// to live of the latch.
pub const UNLOCK_READ: &str = "
local done = redis.call('get', KEYS[5])
if done then return tonumber(done) end
local function answer(number)
  redis.call('set', KEYS[5], number, 'px', ARGV[3])
  return number
end
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  redis.call('publish', KEYS[2], ARGV[1])
  answer(1)
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
    for i = holds or 0, 1, -1 do
      longest = math.max(longest, redis.call('pttl', KEYS[4] .. ':' .. field .. ':rwlock_timeout:' .. i))
    end
  end
  if longest > 0 then
    redis.call('pexpire', KEYS[1], longest)
    return answer(0)
  end
  if mode == 'write' then return answer(0) end
end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[2], ARGV[1])
return answer(1)";

/// KEYS lock, prefix of the keys of this owner's holds; ARGV lease, owner.
pub const RENEW_READ: &str = "
local count = redis.call('hget', KEYS[1], ARGV[2])
if not count then return 0 end
for i = tonumber(count), 1, -1 do
  redis.call('pexpire', KEYS[2] .. ':' .. i, ARGV[1])
end
redis.call('pexpire', KEYS[1], ARGV[1])
return 1";

/// KEYS lock; ARGV lease, owner with `:write`.
pub const LOCK_WRITE: &str = "
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  redis.call('hset', KEYS[1], 'mode', 'write')
  redis.call('hset', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], ARGV[1])
  return nil
end
if mode == 'write' and redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('hincrby', KEYS[1], ARGV[2], 1)
  redis.call('pexpire', KEYS[1], redis.call('pttl', KEYS[1]) + tonumber(ARGV[1]))
  return nil
end
return redis.call('pttl', KEYS[1])";

/// KEYS lock, channel, latch; ARGV message, lease, owner with `:write`, time to live of the latch.
pub const UNLOCK_WRITE: &str = "
local done = redis.call('get', KEYS[3])
if done then return tonumber(done) end
local function answer(number)
  redis.call('set', KEYS[3], number, 'px', ARGV[4])
  return number
end
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  redis.call('publish', KEYS[2], ARGV[1])
  answer(1)
  return nil
end
if mode ~= 'write' or redis.call('hexists', KEYS[1], ARGV[3]) == 0 then return nil end
if redis.call('hincrby', KEYS[1], ARGV[3], -1) > 0 then
  redis.call('pexpire', KEYS[1], ARGV[2])
  return answer(0)
end
redis.call('hdel', KEYS[1], ARGV[3])
if redis.call('hlen', KEYS[1]) == 1 then
  redis.call('del', KEYS[1])
  redis.call('publish', KEYS[2], ARGV[1])
else
  redis.call('hset', KEYS[1], 'mode', 'read')
end
return answer(1)";
