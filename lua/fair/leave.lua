-- fair/leave.lua
-- Takes everything of an owner away: its hold, its place in the queue; whoever is next is told if the lock is free.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] list of waiting owners, the next one first
-- KEYS[3] sorted set of waiting owners, by the server time in ms at which each counts as gone
-- ARGV[1] owner id
-- ARGV[2] patience of this owner, ms
-- ARGV[3] channel of the lock; each waiter has its own, with ':' and its owner id added
-- ARGV[4] message
-- ARGV[5] command that publishes
--
-- reply: 1
local lock, queue, deadlines, owner = KEYS[1], KEYS[2], KEYS[3], ARGV[1]
local patience_ms = tonumber(ARGV[2])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- A key of another type holds nothing of ours.
redis.pcall('hdel', lock, owner)
local place = redis.call('lpos', queue, owner)
if place then
  -- Those behind counted our patience in front of their own.
  for _, waiter in ipairs(redis.call('lrange', queue, place + 1, -1)) do
    local ends = tonumber(redis.call('zscore', deadlines, waiter) or '')
    if ends then
      redis.call('zadd', deadlines, string.format('%.0f', math.max(ends - patience_ms, now + patience_ms)), waiter)
    end
  end
  redis.call('lrem', queue, 0, owner)
end
redis.call('zrem', deadlines, owner)
-- Perhaps it was our turn: then it is the next one's now.
if redis.call('exists', lock) == 0 then
  local head = redis.call('lindex', queue, 0)
  while head and tonumber(redis.call('zscore', deadlines, head) or 0) <= now do
    redis.call('zrem', deadlines, head)
    redis.call('lpop', queue)
    head = redis.call('lindex', queue, 0)
  end
  if head then
    local ends = tonumber(redis.call('zscore', deadlines, head) or '')
    if ends and ends > now + patience_ms and redis.call('llen', queue) > 1 then
      redis.call('zadd', deadlines, now + patience_ms, head)
    end
    redis.pcall(ARGV[5], ARGV[3] .. ':' .. head, ARGV[4])
  end
end
return 1
