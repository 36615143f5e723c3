-- token/reenter.lua
-- Raises the time to live for a holder that takes the lock again; never acquires the lock.
--
-- KEYS[1] lock: the value of the holder
-- ARGV[1] lease, ms; the time to live is only raised
-- ARGV[2] value
--
-- reply: 1 = re-entered | 0 = lost, the lock is free | 2 = lost, another owner holds the lock
local holder = redis.call('get', KEYS[1])
if holder ~= ARGV[2] then
  return holder and 2 or 0
end
redis.call('pexpire', KEYS[1], math.max(tonumber(ARGV[1]), redis.call('pttl', KEYS[1])))
return 1
