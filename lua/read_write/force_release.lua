-- read_write/force_release.lua
-- Opens one side of the lock whoever holds it, and tells waiters; the other side is left alone.
--
-- KEYS[1] lock hash: 'mode' -> read or write, owner id -> read count, owner id:write -> write count
-- ARGV[1] mode to open
-- ARGV[2] channel
-- ARGV[3] message
-- ARGV[4] command that publishes
--
-- reply: 1 = it was held | 0 = it was not
if redis.call('hget', KEYS[1], 'mode') ~= ARGV[1] then
  return 0
end
redis.call('del', KEYS[1])
redis.pcall(ARGV[4], ARGV[2], ARGV[3])
return 1
