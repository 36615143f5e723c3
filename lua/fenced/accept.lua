-- fenced/accept.lua
-- The check of a store: writes a value unless a writer with a newer token has written before.
--
-- KEYS[1] the highest accepted token
-- KEYS[2] the value
-- ARGV[1] token of the writer
-- ARGV[2] new value
--
-- reply: 1 = written | 0 = the writer is late, nothing was written
local newest = tonumber(redis.call('get', KEYS[1])) or 0
if tonumber(ARGV[1]) < newest then
  return 0
end
redis.call('set', KEYS[1], ARGV[1])
redis.call('set', KEYS[2], ARGV[2])
return 1
