-- read_write/force_release.lua
-- Releases one side of the lock, of whatever owner, and publishes a message; the other side stays.
--
-- KEYS[1] lock hash: 'mode' -> read or write, owner id -> read count, owner id:write -> write count
-- ARGV[1] side to release: read or write
-- ARGV[2] channel
-- ARGV[3] message
-- ARGV[4] command that publishes
--
-- reply: 1 = the lock was held | 0 = the lock was free | 2 = the key is another kind of lock, or no lock
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode then
  return redis.call('exists', KEYS[1]) * 2
end
if mode ~= ARGV[1] then
  return 0
end
redis.call('del', KEYS[1])
redis.pcall(ARGV[4], ARGV[2], ARGV[3])
return 1
