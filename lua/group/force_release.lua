-- group/force_release.lua
-- Releases a value of whatever owner, and publishes a message.
--
-- KEYS[1] hash of the group: field -> owner, field:owner:expire_time -> deadline in ms since 1970,
--         field:owner:lock_count -> hold count
-- ARGV[1] field
-- ARGV[2] channel
-- ARGV[3] message
-- ARGV[4] command that publishes
--
-- reply: 1 = the value was held | 0 = the value was free
local holder = redis.call('hget', KEYS[1], ARGV[1])
if not holder then
  return 0
end
local hold = ARGV[1] .. ':' .. holder
redis.call('hdel', KEYS[1], ARGV[1], hold .. ':expire_time', hold .. ':lock_count')
redis.pcall(ARGV[4], ARGV[2], ARGV[3])
return 1
