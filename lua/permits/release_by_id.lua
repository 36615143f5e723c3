-- permits/release_by_id.lua
-- Gives permits of whatever holder back, all or none, and publishes the number of free permits.
--
-- KEYS[1] counter of free permits
-- KEYS[2] sorted set: permit id -> server time in ms at which the permit expires
-- KEYS[3] idempotency key: the number of the last request with an effect, and its answer
-- ARGV[1] number of this request
-- ARGV[2] time to live of the idempotency key, ms
-- ARGV[3] channel
-- ARGV[4] command that publishes
-- ARGV[*] permit ids
--
-- reply: 1 = done | 0 = one of them is unknown or has expired, nothing was changed
local number, answer = string.match(redis.call('get', KEYS[3]) or '', '^(%d+) (-?%d+)$')
number = tonumber(number or 0)
if number > tonumber(ARGV[1]) then
  return redis.error_reply('LATE a later request of this client was served before')
end
if number == tonumber(ARGV[1]) then
  return tonumber(answer)
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
for i = 5, #ARGV do
  local ends = redis.call('zscore', KEYS[2], ARGV[i])
  if not ends or tonumber(ends) <= now then
    return 0
  end
end
-- After this first write, a full memory does not refuse the rest.
redis.call('pexpire', KEYS[3], ARGV[2])
-- Without a counter there is no semaphore to which permits could return.
local has_counter = redis.call('exists', KEYS[1]) == 1
if has_counter then
  -- A user who may not give the permits back must not end them.
  redis.call('incrby', KEYS[1], 0)
end
redis.call('set', KEYS[3], string.format('%s 1', ARGV[1]), 'PX', ARGV[2])
local removed = 0
for i = 5, #ARGV do
  removed = removed + redis.call('zrem', KEYS[2], ARGV[i])
end
if has_counter then
  local free = redis.call('incrby', KEYS[1], removed)
  if free > 0 then
    redis.pcall(ARGV[4], ARGV[3], free)
  end
end
return 1
