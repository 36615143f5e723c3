-- fair/force_release.lua
-- Opens the lock whoever holds it, and tells the next waiter that is alive; the queue stays.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] list of waiting owners, the next one first
-- KEYS[3] sorted set of waiting owners, by the server time in ms at which each counts as gone
-- ARGV[1] channel of the lock; each waiter has its own, with ':' and its owner id added
-- ARGV[2] message
-- ARGV[3] command that publishes
--
-- reply: 1 = it was held | 0 = it was not
if redis.call('hlen', KEYS[1]) == 0 then
  return 0
end
redis.call('del', KEYS[1])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local head = redis.call('lindex', KEYS[2], 0)
while head and tonumber(redis.call('zscore', KEYS[3], head) or 0) <= now do
  redis.call('zrem', KEYS[3], head)
  redis.call('lpop', KEYS[2])
  head = redis.call('lindex', KEYS[2], 0)
end
if head then
  redis.pcall(ARGV[3], ARGV[1] .. ':' .. head, ARGV[2])
end
return 1
