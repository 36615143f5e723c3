-- token/release.lua
-- Releases one hold count: deletes the key, or sets the lease for the remaining hold counts.
--
-- KEYS[1] lock: the value of the holder
-- ARGV[1] value
-- ARGV[2] lease for the remaining hold counts, ms; 0 = none remain
--
-- reply: 1 = done | 0 = lost, the lock is free | 2 = lost, another owner holds the lock
local holder = redis.call('get', KEYS[1])
if holder ~= ARGV[1] then
  return holder and 2 or 0
end
-- A time to live of 0 deletes the key.
redis.call('pexpire', KEYS[1], ARGV[2])
return 1
