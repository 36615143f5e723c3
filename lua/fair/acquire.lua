-- fair/acquire.lua
-- Takes the lock if the lock is free and this owner is first in the queue; otherwise joins or keeps the queue place.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] list of waiting owners, in queue order
-- KEYS[3] sorted set of waiting owners, by the server time in ms at which Redisson drops the waiter
-- KEYS[4] sorted set of waiters of this library, by the server time in ms at which the patience with the waiter ends
-- ARGV[1] lease, ms
-- ARGV[2] owner id
-- ARGV[3] patience, ms: a waiter that is silent for this time loses its place; 0 = ask once, do not join
-- ARGV[4] channel of the lock; a waiter listens to this channel with ':' and the owner id added
-- ARGV[5] message
-- ARGV[6] command that publishes
--
-- reply: {1} = granted | {0, ms} = busy, ask again after this time | {2} = the key is another kind of lock, or no lock
local lock, queue, deadlines, alive, owner = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[2]
local patience_ms = tonumber(ARGV[3])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local silent_at = now + patience_ms
-- When Redisson grants a waiter, it subtracts a waiting time from every deadline behind: 300 s by default.
local taken_by_java_ms = 300000
local day_ms = 86400000

local left_ms = redis.call('pttl', lock)
local free = left_ms == -2
if not free then
  -- An earlier copy of this request was granted and its reply was lost: grant again.
  if redis.call('hexists', lock, owner) == 1 then
    redis.call('pexpire', lock, math.max(tonumber(ARGV[1]), left_ms))
    redis.call('hset', lock, owner, 1)
    return {1}
  end
  -- A lock is a hash of one field, its owner: an id, a colon, a number, perhaps the id of a transaction. A user who
  -- may not read fields is told of a lock with sides only.
  local fields = redis.pcall('hrandfield', lock, 2)
  local is_other
  if fields.err then
    is_other = redis.call('hexists', lock, 'mode') == 1
  else
    is_other = #fields ~= 1 or not string.find(fields[1], ':%-?%d[%d.]*%f[:%z]:?%x*$')
  end
  if is_other then
    return {2}
  end
end

-- Redisson removes a waiter from list and deadlines together. If list and deadlines differ, the list decides.
local mine = redis.call('zscore', deadlines, owner)
if
  mine
  and redis.call('llen', queue) ~= redis.call('zcard', deadlines)
  and not redis.call('lpos', queue, owner)
then
  redis.call('zrem', deadlines, owner)
  mine = false
end

-- The time since this waiter asked last.
local unheard_ms = mine and silent_at - tonumber(redis.call('zscore', alive, owner) or silent_at) or 0
local outage_ms = patience_ms / 2
if unheard_ms > outage_ms then
  -- If all waiters were silent, the server was out of reach, and the silence counts against no waiter. Redisson may
  -- have dropped some of them, which are no waiters any more.
  local silence_ms = silent_at - tonumber(redis.call('zrevrange', alive, 0, 0, 'withscores')[2])
  local waiters = silence_ms > outage_ms and redis.call('zrange', alive, 0, -1, 'withscores') or {}
  for i = 1, #waiters, 2 do
    local ends = redis.call('zscore', deadlines, waiters[i])
    if ends then
      redis.call('zadd', alive, waiters[i + 1] + silence_ms, waiters[i])
      redis.call('zadd', deadlines, string.format('%.0f', ends + silence_ms), waiters[i])
    else
      redis.call('zrem', alive, waiters[i])
    end
  end
end

-- While the lock is free, drop the head if its patience ended, its deadline passed, or its deadline is missing.
local head, head_ends = redis.call('lindex', queue, 0), 0
local purged = false
while free and head do
  head_ends = mine and head == owner and silent_at
    or tonumber(redis.call('zscore', alive, head) or redis.call('zscore', deadlines, head) or 0)
  if head_ends > now then
    break
  end
  redis.call('zrem', deadlines, head)
  redis.call('zrem', alive, head)
  redis.call('lpop', queue)
  purged = true
  head = redis.call('lindex', queue, 0)
end

if free and (not head or head == owner) then
  redis.call('hset', lock, owner, 1)
  local set = redis.pcall('pexpire', lock, ARGV[1])
  if type(set) == 'table' then
    -- A user who may not set the expiry must not take the lock: a lock without expiry could block for ever.
    redis.call('hdel', lock, owner)
    return set
  end
  -- A user who may not release or leave the queue must not take the lock. This check follows the first write: if it
  -- came before, a full memory would not refuse the first write any more.
  local done = redis.pcall('hdel', lock, '')
  if type(done) ~= 'table' then
    done = redis.pcall('zrem', alive, owner)
  end
  if type(done) ~= 'table' and head then
    done = redis.pcall('lpop', queue)
  end
  if type(done) == 'table' then
    redis.call('pexpire', lock, 0)
    return done
  end
  if head then
    redis.call('zrem', deadlines, owner)
    -- A waiter of Redisson that becomes the head gets at least the patience of this library.
    local next_one = redis.call('lindex', queue, 0)
    local is_java = next_one and not redis.call('zscore', alive, next_one)
    if is_java and tonumber(redis.call('zscore', deadlines, next_one) or silent_at) < silent_at then
      redis.call('zadd', deadlines, silent_at, next_one)
    end
  end
  return {1}
end
-- The waiter that got the message is gone, so the new head must get a message.
if purged then
  redis.pcall(ARGV[6], ARGV[4] .. ':' .. head, ARGV[5])
end
if patience_ms == 0 then
  return {0, math.max(left_ms, 0)}
end

-- This waiter is alive. What follows walks the queue or what is silent, so it is done for a new waiter, and at most twice
-- a second: the time to live of the set tells when it was done last.
redis.call('zadd', alive, silent_at, owner)
local is_due = redis.call('pttl', alive) <= day_ms - 500
if is_due or not mine then
  -- Redisson drops a waiter from list and deadlines alone.
  for _, waiter in ipairs(redis.call('zrangebyscore', alive, '-inf', now)) do
    if not redis.call('zscore', deadlines, waiter) then
      redis.call('zrem', alive, waiter)
    end
  end
end

-- The deadline for Redisson must last until the next request of this waiter, plus the time that waiters of Redisson in
-- front may subtract. Their number is the length of the queue less the waiters of this library, and is not sure where
-- some of these may have been dropped since: then the deadline stays as far away as before.
local length = redis.call('llen', queue) + (mine and 0 or 1)
local of_java = length - redis.call('zcard', alive)
local ends = silent_at
if head ~= owner and (of_java > 0 or mine and not is_due) then
  ends = mine and math.max(tonumber(mine) + unheard_ms, silent_at) or silent_at + taken_by_java_ms * of_java
end
redis.call('zadd', deadlines, string.format('%.0f', ends), owner)
if not mine then
  redis.call('rpush', queue, owner)
end

if is_due then
  redis.call('pexpire', alive, day_ms)
  local in_front = 0
  -- Farther back a waiter keeps its distance: a waiter of Redisson that leaves takes as much time as it added.
  for _, waiter in ipairs(of_java > 0 and redis.call('lrange', queue, 0, 999) or {}) do
    local alive_until = redis.call('zscore', alive, waiter)
    if alive_until then
      redis.call('zadd', deadlines, string.format('%.0f', alive_until + taken_by_java_ms * in_front), waiter)
    else
      in_front = in_front + 1
    end
  end
end
-- The keys of the queue expire, even if no waiter removes them.
if is_due or not mine then
  local last_end = redis.call('zrevrange', deadlines, 0, 0, 'withscores')[2]
  local keep_ms = math.max(tonumber(last_end) - now, 0) + day_ms
  redis.call('pexpire', queue, keep_ms)
  redis.call('pexpire', deadlines, keep_ms)
end

-- A waiter asks four times within its patience, so one late request does not cost its place; far back in a long queue
-- a waiter asks twice.
local sleep_ms = math.min(1000, patience_ms / 4)
if length > 100 and not redis.call('lpos', queue, owner, 'maxlen', 100) then
  sleep_ms = math.min(2000, patience_ms * 0.4)
end
if not free then
  return {0, math.floor(left_ms < 0 and sleep_ms or math.min(left_ms, sleep_ms))}
end
-- The lock is free and another waiter is the head: the head has the patience of this library to ask. Whoever removed the
-- lock or the waiter before may have published no message, so the head gets one more message now.
if head_ends > silent_at then
  head_ends = silent_at
  redis.call('zadd', deadlines, head_ends, head)
  redis.call('zadd', alive, 'xx', head_ends, head)
end
if not purged then
  redis.pcall(ARGV[6], ARGV[4] .. ':' .. head, ARGV[5])
end
return {0, math.floor(math.min(math.max(head_ends - now, 10), sleep_ms))}
