-- permits/set.lua
-- Sets the number of all permits, free and taken, and publishes the number of free permits.
--
-- KEYS[1] counter of free permits
-- KEYS[2] sorted set: permit id -> server time in ms at which the permit expires
-- ARGV[1] permits
-- ARGV[2] 1 = only if there is no semaphore
-- ARGV[3] channel
-- ARGV[4] command that publishes
--
-- reply: 1 = set | 0 = there is a semaphore
local free = redis.call('get', KEYS[1])
if free and ARGV[2] == '1' then
  return 0
end
-- Permits that are still taken count, also after the counter was deleted: they return when they are given back.
local change = ARGV[1] - redis.call('zcard', KEYS[2]) - (free or 0)
if free and change == 0 then
  return 1
end
free = redis.call('incrby', KEYS[1], string.format('%.0f', change))
if free > 0 then
  redis.pcall(ARGV[4], ARGV[3], free)
end
return 1
