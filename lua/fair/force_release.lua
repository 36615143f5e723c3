-- fair/force_release.lua
-- Opens the lock whoever holds it, and tells the next waiter; the queue stays.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] list of waiting owners, the next one first
-- ARGV[1] channel of the lock; each waiter has its own, with ':' and its owner id added
-- ARGV[2] message
-- ARGV[3] command that publishes
--
-- reply: 1 = it was held | 0 = it was not
if redis.call('hlen', KEYS[1]) == 0 then
  return 0
end
redis.call('del', KEYS[1])
local head = redis.call('lindex', KEYS[2], 0)
if head then
  redis.pcall(ARGV[3], ARGV[1] .. ':' .. head, ARGV[2])
end
return 1
