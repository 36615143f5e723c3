-- read_write/is_locked.lua
-- Returns whether one side of the lock is held.
--
-- KEYS[1] lock hash: 'mode' -> read or write, owner id -> read count, owner id:write -> write count
-- ARGV[1] side: read or write
--
-- reply: 1 = held | 0 = free
local mode = redis.call('hget', KEYS[1], 'mode')
if mode == ARGV[1] then
  return 1
end
-- A writer with a read hold has three fields: mode, write count, read count.
if ARGV[1] == 'read' and mode == 'write' and redis.call('hlen', KEYS[1]) > 2 then
  return 1
end
return 0
