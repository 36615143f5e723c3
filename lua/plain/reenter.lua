-- plain/reenter.lua
-- Writes the new hold count of an owner that holds the lock; never acquires the lock.
--
-- KEYS[1] lock hash: owner id -> hold count
-- ARGV[1] lease, ms; the time to live is only raised
-- ARGV[2] owner id
-- ARGV[3] hold count, absolute
--
-- reply: 1 = re-entered | 0 = lost, the lock is free | 2 = lost, another owner holds the lock
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return redis.call('exists', KEYS[1]) * 2
end
-- The time to live is set first: after this first write, a full memory does not refuse the hold count.
local lease_ms = math.max(tonumber(ARGV[1]), redis.call('pttl', KEYS[1]))
redis.call('pexpire', KEYS[1], lease_ms)
redis.call('hset', KEYS[1], ARGV[2], ARGV[3])
return 1
