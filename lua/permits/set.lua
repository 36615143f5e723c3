-- permits/set.lua
-- Sets the number of all permits, free and taken, and publishes the number of free permits.
--
-- KEYS[1] counter of free permits
-- KEYS[2] sorted set: permit id -> server time in ms at which the permit expires
-- KEYS[3] idempotency key: the number of the last request with an effect, and its answer
-- ARGV[1] number of this request
-- ARGV[2] time to live of the idempotency key, ms
-- ARGV[3] permits
-- ARGV[4] 1 = only if there is no semaphore
-- ARGV[5] channel
-- ARGV[6] command that publishes
--
-- reply: 1 = set | 0 = there is a semaphore
local number, answer = string.match(redis.call('get', KEYS[3]) or '', '^(%d+) (-?%d+)$')
number = tonumber(number or 0)
if number > tonumber(ARGV[1]) then
  return redis.error_reply('LATE a later request of this client was served before')
end
if number == tonumber(ARGV[1]) then
  return tonumber(answer)
end
local free = redis.call('get', KEYS[1])
if not string.match(free or '0', '^%-?%d+$') then
  return redis.error_reply('WRONGTYPE the key holds no number')
end
if free and ARGV[4] == '1' then
  return 0
end
-- Permits that are still taken count, also after the counter was deleted: they return when they are given back.
local change = ARGV[3] - redis.call('zcard', KEYS[2]) - (free or 0)
if free and change == 0 then
  return 1
end
redis.call('set', KEYS[3], string.format('%s 1', ARGV[1]), 'PX', ARGV[2])
free = redis.pcall('incrby', KEYS[1], string.format('%.0f', change))
if type(free) == 'table' then
  redis.call('pexpire', KEYS[3], 0)
  return free
end
if free > 0 then
  redis.pcall(ARGV[6], ARGV[5], free)
end
return 1
