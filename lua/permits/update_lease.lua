-- permits/update_lease.lua
-- Sets the lease of a permit of whatever holder, counted from now.
--
-- KEYS[1] sorted set: permit id -> server time in ms at which the permit expires
-- ARGV[1] permit id
-- ARGV[2] lease, ms
--
-- reply: 1 = done | 0 = the permit is unknown or has expired
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = redis.call('zscore', KEYS[1], ARGV[1])
if not ends or tonumber(ends) <= now then
  return 0
end
redis.call('zadd', KEYS[1], 'XX', string.format('%.0f', now + ARGV[2]), ARGV[1])
return 1
