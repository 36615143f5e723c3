-- token/reenter.lua
-- Raises the time to live for a holder that takes the lock once more; never takes it anew.
--
-- KEYS[1] lock: the value of whoever holds
-- ARGV[1] lease, ms; the time to live is only ever raised
-- ARGV[2] value
--
-- reply: 1 = re-entered | 0 = lost, nobody holds it | 2 = lost, somebody else has it
local holder = redis.call('get', KEYS[1])
if holder ~= ARGV[2] then
  return holder and 2 or 0
end
redis.call('pexpire', KEYS[1], math.max(tonumber(ARGV[1]), redis.call('pttl', KEYS[1])))
return 1
