-- permits/add.lua
-- Adds free permits, or takes free permits away, and publishes the number of free permits.
--
-- KEYS[1] counter of free permits
-- KEYS[2] idempotency key: the number of the last request with an effect, and its answer
-- ARGV[1] number of this request
-- ARGV[2] time to live of the idempotency key, ms
-- ARGV[3] permits; negative = permits are taken away
-- ARGV[4] channel
-- ARGV[5] command that publishes
--
-- reply: free permits
local number, answer = string.match(redis.call('get', KEYS[2]) or '', '^(%d+) (-?%d+)$')
number = tonumber(number or 0)
if number > tonumber(ARGV[1]) then
  return redis.error_reply('LATE a later request of this client was served before')
end
if number == tonumber(ARGV[1]) then
  return tonumber(answer)
end
local free = tonumber(string.match(redis.call('get', KEYS[1]) or '0', '^%-?%d+$'))
if not free then
  return redis.error_reply('WRONGTYPE the key holds no number')
end
if tonumber(ARGV[3]) > 0 and free + ARGV[3] > 2147483647 then
  return redis.error_reply('OVERFLOW Redisson cannot count so many free permits')
end
redis.call('set', KEYS[2], string.format('%s %.0f', ARGV[1], free + ARGV[3]), 'PX', ARGV[2])
free = redis.pcall('incrby', KEYS[1], ARGV[3])
if type(free) == 'table' then
  redis.call('pexpire', KEYS[2], 0)
  return free
end
-- Listeners of Redisson fail on a negative number.
if free > 0 and tonumber(ARGV[3]) > 0 then
  redis.pcall(ARGV[5], ARGV[4], free)
end
return free
