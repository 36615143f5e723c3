-- permits/release_by_id.lua
-- Gives permits of whatever holder back, all or none, and publishes the number of free permits.
--
-- KEYS[1] counter of free permits
-- KEYS[2] sorted set: permit id -> server time in ms at which the permit expires
-- ARGV[1] channel
-- ARGV[2] command that publishes
-- ARGV[*] permit ids
--
-- reply: 1 = done | 0 = one of them is unknown or has expired, nothing was changed
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 3, #ARGV do
  local ends = redis.call('zscore', KEYS[2], ARGV[i])
  if not ends or tonumber(ends) <= now then
    return 0
  end
end
local removed = 0
for i = 3, #ARGV do
  removed = removed + redis.call('zrem', KEYS[2], ARGV[i])
end
-- Without a counter there is no semaphore to which permits could return.
if redis.call('exists', KEYS[1]) == 1 then
  local free = redis.call('incrby', KEYS[1], removed)
  if free > 0 then
    redis.pcall(ARGV[2], ARGV[1], free)
  end
end
return 1
