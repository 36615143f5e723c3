-- fair/release.lua
-- Gives one hold back: writes the count that remains, or with none left opens the lock and tells the next waiter.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] list of waiting owners, the next one first
-- KEYS[3] sorted set of waiting owners, by the server time in ms at which each counts as gone for Redisson
-- KEYS[4] sorted set of our waiters, by the server time in ms at which each will have been silent for its patience
-- ARGV[1] owner id
-- ARGV[2] hold count that remains, absolute
-- ARGV[3] lease for the remaining holds, ms
-- ARGV[4] channel of the lock; each waiter has its own, with ':' and its owner id added
-- ARGV[5] message
-- ARGV[6] command that publishes
-- ARGV[7] patience, ms: whoever is told now has so long to come, if others wait behind
--
-- reply: {1, n} = done, n clients were told (-1 = telling them was refused)
--        | {0} = lost, nobody holds it | {2} = lost, somebody else has it
local lock, queue, deadlines, alive = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
if tonumber(ARGV[2]) > 0 then
  if redis.call('hexists', lock, ARGV[1]) == 0 then
    return {redis.call('exists', lock) * 2}
  end
  -- First the time to live: after it a full memory does not refuse the count.
  redis.call('pexpire', lock, ARGV[3])
  redis.call('hset', lock, ARGV[1], ARGV[2])
  return {1, 0}
end
if redis.call('hdel', lock, ARGV[1]) == 0 then
  return {redis.call('exists', lock) * 2}
end
if redis.call('exists', lock) == 1 then
  return {1, 0}
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The first that is not gone: neither silent for its patience, nor past its deadline, nor without one.
local first = redis.call('lindex', queue, 0)
local head, head_ends, gone = first, 0, 0
while head do
  head_ends = tonumber(redis.call('zscore', alive, head) or redis.call('zscore', deadlines, head) or 0)
  if head_ends > now then
    break
  end
  gone = gone + 1
  head = redis.call('lindex', queue, gone)
end
if first and not head and redis.call('zscore', alive, first) then
  -- Nobody was heard of: perhaps the server was out of reach, and not the waiters. The first is told and keeps its place.
  head = first
else
  for _ = 1, gone do
    local waiter = redis.call('lpop', queue)
    redis.call('zrem', deadlines, waiter)
    redis.call('zrem', alive, waiter)
  end
  -- Alone it costs nobody anything, and whoever joins behind it counts from its deadline.
  if redis.call('llen', queue) > 1 then
    local comes_by = math.min(head_ends, now + tonumber(ARGV[7]))
    redis.call('zadd', deadlines, comes_by, head)
    redis.call('zadd', alive, 'xx', comes_by, head)
  end
end
if not head then
  return {1, 0}
end
local told = redis.pcall(ARGV[6], ARGV[4] .. ':' .. head, ARGV[5])
if type(told) ~= 'number' then
  told = -1
end
return {1, told}
