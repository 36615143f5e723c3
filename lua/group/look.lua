-- group/look.lua
-- Tells the hold of a value that has not expired.
--
-- KEYS[1] hash of the group: field -> owner, field:owner:expire_time -> deadline in ms since 1970,
--         field:owner:lock_count -> hold count
-- ARGV[1] field
-- ARGV[2] difference of clocks, ms
--
-- reply: {owner, hold count, time until the hold expires in ms} | {} = the value is free
local holder = redis.call('hget', KEYS[1], ARGV[1])
if not holder then
  return {}
end
local hold = ARGV[1] .. ':' .. holder
local count = tonumber(redis.call('hget', KEYS[1], hold .. ':lock_count') or 1) or 1
local deadline = tonumber(redis.call('hget', KEYS[1], hold .. ':expire_time') or 0) or 0
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local left = deadline + ARGV[2] - now
if left <= 0 then
  return {}
end
local ttl = redis.call('pttl', KEYS[1])
return {holder, count, ttl < 0 and left or math.min(left, ttl)}
