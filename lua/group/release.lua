-- group/release.lua
-- Releases hold counts of values: writes the remaining count, or removes the hold and publishes a message.
--
-- KEYS[*] for each value the hash of its group: field -> owner, field:owner:expire_time -> deadline in ms since 1970,
--         field:owner:lock_count -> hold count
-- ARGV[*] for each value in order: field, owner id, remaining hold count, absolute, lease for the remaining hold
--         counts, ms, channel; at the end the difference of clocks in ms, message, command that publishes
--
-- reply: {answer for each value in order}; an answer is
--        {1, n} = done, n clients received the message (-1 = Redis refused to publish; 0 for the further values of a
--        channel) | {0} = lost, the value is free | {2} = lost, another owner holds the value
local skew_ms, message, publish = ARGV[#ARGV - 2], ARGV[#ARGV - 1], ARGV[#ARGV]
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answers = {}
local refused
-- The channels of released values in order, and for each the answer that gets the number of receivers.
local channels, told = {}, {}

local function lower(key, hold, count, lease_ms)
  -- After this first write, which writes nothing, a full memory does not refuse the next one.
  redis.call('hdel', key, '')
  redis.call('hset', key, hold .. ':expire_time', now + lease_ms, hold .. ':lock_count', count)
  -- The time to live is only raised: other values may need the key for longer.
  local ttl = redis.call('pttl', key)
  if ttl >= 0 and ttl < lease_ms then
    redis.call('pexpire', key, lease_ms)
  end
end

local function release(key, field, owner, count, lease_ms, channel)
  -- A key that is not a lock must not stop the release of the other values.
  local holder = redis.pcall('hget', key, field)
  if type(holder) == 'table' then
    if not string.find(holder.err, 'WRONGTYPE', 1, true) then
      refused = refused or holder
    end
    return {2}
  end
  local hold = field .. ':' .. owner
  if holder ~= owner then
    -- Redisson leaves the fields of an expired hold when it takes the value over.
    redis.pcall('hdel', key, hold .. ':expire_time', hold .. ':lock_count')
    return {holder and 2 or 0}
  end
  if count > 0 then
    lower(key, hold, count, lease_ms + skew_ms)
    return {1, 0}
  end
  local removed = redis.pcall('hdel', key, field, hold .. ':expire_time', hold .. ':lock_count')
  if type(removed) == 'table' then
    refused = refused or removed
    return {2}
  end
  local answer = {1, 0}
  if not told[channel] then
    told[channel] = answer
    channels[#channels + 1] = channel
  end
  return answer
end

for i, key in ipairs(KEYS) do
  local at = 5 * i
  answers[i] = release(key, ARGV[at - 4], ARGV[at - 3], tonumber(ARGV[at - 2]), tonumber(ARGV[at - 1]), ARGV[at])
end
for _, channel in ipairs(channels) do
  -- The value is free even if the message is refused; waiters also ask without a message.
  local receivers = redis.pcall(publish, channel, message)
  told[channel][2] = type(receivers) == 'number' and receivers or -1
end
-- A value that the user may not release is still held; the request can be repeated.
return refused or answers
