-- permits/add.lua
-- Adds free permits, or takes free permits away, and publishes the number of free permits.
--
-- KEYS[1] counter of free permits
-- ARGV[1] permits; negative = permits are taken away
-- ARGV[2] channel
-- ARGV[3] command that publishes
--
-- reply: free permits
local free = redis.call('incrby', KEYS[1], ARGV[1])
-- Listeners of Redisson fail on a negative number.
if free > 0 and tonumber(ARGV[1]) > 0 then
  redis.pcall(ARGV[3], ARGV[2], free)
end
return free
