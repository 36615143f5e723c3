-- reentrant/reenter.lua
-- Writes the new hold count of an owner that holds the lock; never takes the lock anew.
--
-- KEYS[1] lock hash: owner id -> hold count
-- ARGV[1] lease, ms; the time to live is only ever raised
-- ARGV[2] owner id
-- ARGV[3] hold count, absolute
--
-- reply: 1 = re-entered | 0 = lost, nobody holds it | 2 = lost, somebody else has it
if redis.call('hexists', KEYS[1], ARGV[2]) == 0 then
  return redis.call('exists', KEYS[1]) * 2
end
-- First the time to live: after it a full memory does not refuse the count.
local lease_ms = math.max(tonumber(ARGV[1]), redis.call('pttl', KEYS[1]))
redis.call('pexpire', KEYS[1], lease_ms)
redis.call('hset', KEYS[1], ARGV[2], ARGV[3])
return 1
