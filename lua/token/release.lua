-- token/release.lua
-- Gives one hold back: opens the lock, or leaves it to the holds that remain.
--
-- KEYS[1] lock: the value of whoever holds
-- ARGV[1] value
-- ARGV[2] lease for the remaining holds, ms; 0 = none remain
--
-- reply: 1 = done | 0 = lost, nobody holds it | 2 = lost, somebody else has it
local holder = redis.call('get', KEYS[1])
if holder ~= ARGV[1] then
  return holder and 2 or 0
end
-- None deletes the key.
redis.call('pexpire', KEYS[1], ARGV[2])
return 1
