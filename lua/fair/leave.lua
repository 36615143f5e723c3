-- fair/leave.lua
-- Removes the hold and the queue place of an owner; if the lock is free, the first waiter gets a message.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] list of waiting owners, in queue order
-- KEYS[3] sorted set of waiting owners, by the server time in ms at which Redisson drops the waiter
-- KEYS[4] sorted set of waiters of this library, by the server time in ms at which the patience with the waiter ends
-- ARGV[1] owner id
-- ARGV[2] patience of this owner, ms
-- ARGV[3] channel of the lock; a waiter listens to this channel with ':' and the owner id added
-- ARGV[4] message
-- ARGV[5] command that publishes
--
-- reply: 1
local lock, queue, deadlines, alive, owner = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local comes_by = now + tonumber(ARGV[2])
-- While one waiter of this library is alive, a time in which none of them asked counts against none: it was an outage.
local last_ends = tonumber(redis.call('zrevrange', alive, 0, 0, 'withscores')[2] or 0)
local silence_ms = comes_by - last_ends
local judged_at = last_ends > now and silence_ms > ARGV[2] / 2 and now - silence_ms or now
-- A key of another type contains no hold of this owner.
redis.pcall('hdel', lock, owner)
local was_first = redis.call('lindex', queue, 0) == owner
redis.call('lrem', queue, 0, owner)
redis.call('zrem', deadlines, owner)
redis.call('zrem', alive, owner)
local free = redis.call('exists', lock) == 0
if not free and not was_first then
  return 1
end
-- The first live waiter: its patience has not ended, and its deadline exists and has not passed. A waiter of Redisson
-- that becomes the head gets at least the patience of this library. While the lock is held, silence is not judged.
local head, head_ends, gone, spared = redis.call('lindex', queue, 0), 0, 0, nil
while head do
  local silent = redis.call('zscore', alive, head)
  head_ends = tonumber(silent or redis.call('zscore', deadlines, head) or 0)
  if was_first and not silent and head_ends > 0 then
    head_ends = math.max(head_ends, comes_by)
  end
  if head_ends > (silent and judged_at or now) or silent and not free then
    break
  end
  spared = spared or silent and gone
  gone = gone + 1
  head = redis.call('lindex', queue, gone)
end
if not head and spared then
  -- All waiters were silent: perhaps the server was out of reach. The first one of this library gets the message.
  head, gone = redis.call('lindex', queue, spared), spared
end
for _ = 1, gone do
  local waiter = redis.call('lpop', queue)
  redis.call('zrem', deadlines, waiter)
  redis.call('zrem', alive, waiter)
end
if not head then
  return 1
end
-- The removed owner may have been the head: then the next waiter is the head now. Waiters of Redisson sleep for longer
-- than the patience, so one that is late is not dropped for their sake.
local ours_end = tonumber(redis.call('zrevrange', alive, 0, 0, 'withscores')[2] or 0)
if free and head_ends > now and ours_end > now and redis.call('llen', queue) > 1 then
  head_ends = math.min(head_ends, comes_by)
  redis.call('zadd', alive, 'xx', head_ends, head)
end
if head_ends > now then
  redis.call('zadd', deadlines, string.format('%.0f', head_ends), head)
end
if free then
  redis.pcall(ARGV[5], ARGV[3] .. ':' .. head, ARGV[4])
end
return 1
