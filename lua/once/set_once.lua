-- once/set_once.lua
-- Makes a counter if there is none, and publishes a message.
--
-- KEYS[1] counter
-- KEYS[2] idempotency key: the number of the last request with an effect, and its answer
-- ARGV[1] number of this request
-- ARGV[2] time to live of the idempotency key, ms
-- ARGV[3] count
-- ARGV[4] time to live of the counter, ms; 0 = no end
-- ARGV[5] channel
-- ARGV[6] message
-- ARGV[7] command that publishes
--
-- reply: 1 = made | 0 = there is a counter
local number = string.match(redis.call('get', KEYS[2]) or '', '^(%d+) ')
number = tonumber(number or 0)
if number > tonumber(ARGV[1]) then
  return redis.error_reply('LATE a later request of this client was served before')
end
if number == tonumber(ARGV[1]) then
  return 1
end
local count = redis.call('get', KEYS[1])
if not string.match(count or '0', '^%-?%d+$') then
  return redis.error_reply('WRONGTYPE the key holds no number')
end
if count then
  return 0
end
if ARGV[4] == '0' then
  redis.call('set', KEYS[1], ARGV[3])
else
  redis.call('set', KEYS[1], ARGV[3], 'PX', ARGV[4])
end
redis.call('set', KEYS[2], string.format('%s 1', ARGV[1]), 'PX', ARGV[2])
redis.pcall(ARGV[7], ARGV[5], ARGV[6])
return 1
