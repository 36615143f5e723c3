-- permits/time_to_live.lua
-- Reads how long a permit stays taken.
--
-- KEYS[1] sorted set: permit id -> server time in ms at which the permit expires
-- ARGV[1] permit id
--
-- reply: ms | -1 = without an end | -2 = the permit is unknown or has expired
local ends = tonumber(redis.call('zscore', KEYS[1], ARGV[1]) or 0)
if ends >= 922337203685477 then
  return -1
end
local time = redis.call('time')
local left_ms = ends - time[1] * 1000 - math.floor(time[2] / 1000)
return left_ms > 0 and left_ms or -2
