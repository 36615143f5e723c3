-- fair/force_release.lua
-- Opens the lock whoever holds it, and tells the next waiter that is alive; the queue stays.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] list of waiting owners, the next one first
-- KEYS[3] sorted set of waiting owners, by the server time in ms at which each counts as gone for Redisson
-- KEYS[4] sorted set of our waiters, by the server time in ms at which each will have been silent for its patience
-- ARGV[1] channel of the lock; each waiter has its own, with ':' and its owner id added
-- ARGV[2] message
-- ARGV[3] command that publishes
--
-- reply: 1 = it was held | 0 = it was not
local queue, deadlines, alive = KEYS[2], KEYS[3], KEYS[4]
if redis.call('hlen', KEYS[1]) == 0 then
  return 0
end
redis.call('del', KEYS[1])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- A head that has been silent for its patience, that passed its deadline or has none makes room.
local head = redis.call('lindex', queue, 0)
while head do
  if tonumber(redis.call('zscore', alive, head) or redis.call('zscore', deadlines, head) or 0) > now then
    redis.pcall(ARGV[3], ARGV[1] .. ':' .. head, ARGV[2])
    break
  end
  redis.call('zrem', deadlines, head)
  redis.call('zrem', alive, head)
  redis.call('lpop', queue)
  head = redis.call('lindex', queue, 0)
end
return 1
