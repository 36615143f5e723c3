-- fair/release.lua
-- Gives one hold back: writes the count that remains, or with none left opens the lock and tells the next waiter.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] list of waiting owners, the next one first
-- KEYS[3] sorted set of waiting owners, by the server time in ms at which each counts as gone
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
local lock, queue, deadlines = KEYS[1], KEYS[2], KEYS[3]
if redis.call('hexists', lock, ARGV[1]) == 0 then
  return {redis.call('exists', lock) * 2}
end
if tonumber(ARGV[2]) > 0 then
  -- First the time to live: after it a full memory does not refuse the count.
  redis.call('pexpire', lock, ARGV[3])
  redis.call('hset', lock, ARGV[1], ARGV[2])
  return {1, 0}
end
redis.call('hdel', lock, ARGV[1])
if redis.call('exists', lock) == 1 then
  return {1, 0}
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head = redis.call('lindex', queue, 0)
while head and tonumber(redis.call('zscore', deadlines, head) or 0) <= now do
  redis.call('zrem', deadlines, head)
  redis.call('lpop', queue)
  head = redis.call('lindex', queue, 0)
end
if not head then
  return {1, 0}
end
-- Alone it costs nobody anything, and whoever joins behind it counts from its deadline.
local comes_by = now + tonumber(ARGV[7])
if redis.call('llen', queue) > 1 and tonumber(redis.call('zscore', deadlines, head)) > comes_by then
  redis.call('zadd', deadlines, comes_by, head)
end
local told = redis.pcall(ARGV[6], ARGV[4] .. ':' .. head, ARGV[5])
if type(told) ~= 'number' then
  told = -1
end
return {1, told}
