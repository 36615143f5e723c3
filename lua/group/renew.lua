-- group/renew.lua
-- Raises the deadline of each value that its owner still holds, and the time to live of its group.
--
-- KEYS[*] for each value the hash of its group: field -> owner, field:owner:expire_time -> deadline in ms since 1970,
--         field:owner:lock_count -> hold count
-- ARGV[*] for each value in order: field, owner id, lease in ms; at the end the difference of clocks, ms
--
-- reply: an answer for each value in order:
--        1 = renewed | 0 = lost, the value is free | 2 = lost, another owner holds the value | text of an error
local skew_ms = ARGV[#ARGV]
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answers = {}

local function renew(key, field, owner, lease_ms)
  -- A key that is not a lock must not stop the renewal of the other values.
  local holder = redis.pcall('hget', key, field)
  if type(holder) == 'table' then
    return holder.err
  end
  if holder ~= owner then
    return holder and 2 or 0
  end
  local expiry = field .. ':' .. owner .. ':expire_time'
  local deadline = tonumber(redis.call('hget', key, expiry) or 0) or 0
  if deadline < now + lease_ms then
    -- After this first write, which writes nothing, a full memory does not refuse the next one.
    redis.call('hdel', key, '')
    local set = redis.pcall('hset', key, expiry, now + lease_ms)
    if type(set) == 'table' then
      return set.err
    end
  end
  -- The time to live is only raised: other values may need the key for longer.
  local ttl = redis.call('pttl', key)
  if ttl >= 0 and ttl < lease_ms then
    local set = redis.pcall('pexpire', key, lease_ms)
    if type(set) == 'table' then
      return set.err
    end
  end
  -- The read follows the writes, so that a connection with tracking is told of later changes to the key.
  redis.call('hget', key, field)
  return 1
end

for i, key in ipairs(KEYS) do
  answers[i] = renew(key, ARGV[3 * i - 2], ARGV[3 * i - 1], ARGV[3 * i] + skew_ms)
end
return answers
