-- group/reenter.lua
-- Writes the new hold count of an owner that holds the value; never acquires the value.
--
-- KEYS[1] hash of the group: field -> owner, field:owner:expire_time -> deadline in ms since 1970,
--         field:owner:lock_count -> hold count
-- ARGV[1] field
-- ARGV[2] owner id
-- ARGV[3] lease, ms; deadline and time to live are only raised
-- ARGV[4] hold count, absolute
-- ARGV[5] difference of clocks, ms
--
-- reply: 1 = re-entered | 0 = lost, the value is free | 2 = lost, another owner holds the value
local holder = redis.call('hget', KEYS[1], ARGV[1])
if holder ~= ARGV[2] then
  return holder and 2 or 0
end
local hold = ARGV[1] .. ':' .. ARGV[2]
local time = redis.call('time')
local lease_ms = ARGV[3] + ARGV[5]
local deadline = time[1] * 1000 + math.floor(time[2] / 1000) + lease_ms
deadline = math.max(deadline, tonumber(redis.call('hget', KEYS[1], hold .. ':expire_time') or 0) or 0)
-- After this first write, which writes nothing, a full memory does not refuse the next one.
redis.call('hdel', KEYS[1], '')
redis.call('hset', KEYS[1], hold .. ':expire_time', deadline, hold .. ':lock_count', ARGV[4])
local ttl = redis.call('pttl', KEYS[1])
if ttl >= 0 and ttl < lease_ms then
  redis.call('pexpire', KEYS[1], lease_ms)
end
return 1
