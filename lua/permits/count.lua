-- permits/count.lua
-- Counts permits, and changes nothing: expired permits count as free.
--
-- KEYS[1] counter of free permits
-- KEYS[2] sorted set: permit id -> server time in ms at which the permit expires
--
-- reply: {free permits, taken permits}
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local free = redis.call('get', KEYS[1])
if not string.match(free or '0', '^%-?%d+$') then
  return redis.error_reply('WRONGTYPE the key holds no number')
end
local taken = redis.call('zcount', KEYS[2], string.format('(%.0f', now), '+inf')
-- Without a counter there is no semaphore to which permits could return.
if not free then
  return {0, taken}
end
return {free + redis.call('zcount', KEYS[2], 0, string.format('%.0f', now)), taken}
