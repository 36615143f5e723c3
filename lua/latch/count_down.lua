-- latch/count_down.lua
-- Counts down by one, and opens the latch at zero: deletes the count and publishes a message.
--
-- KEYS[1] count
-- KEYS[2] idempotency key: the number of the last request with an effect, and its answer
-- ARGV[1] number of this request
-- ARGV[2] time to live of the idempotency key, ms
-- ARGV[3] channel
-- ARGV[4] message: the count is zero
-- ARGV[5] command that publishes
--
-- reply: the remaining count; 0 = open
local number, answer = string.match(redis.call('get', KEYS[2]) or '', '^(%d+) (-?%d+)$')
number = tonumber(number or 0)
if number > tonumber(ARGV[1]) then
  return redis.error_reply('LATE a later request of this client was served before')
end
if number == tonumber(ARGV[1]) then
  return tonumber(answer)
end
local count = redis.call('get', KEYS[1])
if not count then
  return 0
end
if not string.match(count, '^%-?%d+$') then
  return redis.error_reply('WRONGTYPE the key holds no number')
end
-- After this first write, a full memory does not refuse to count.
redis.call('pexpire', KEYS[2], ARGV[2])
local left = math.max(tonumber(count) - 1, 0)
redis.call('set', KEYS[2], string.format('%s %d', ARGV[1], left), 'PX', ARGV[2])
local done
if left > 0 then
  done = redis.pcall('incrby', KEYS[1], -1)
else
  done = redis.pcall('del', KEYS[1])
end
if type(done) == 'table' then
  redis.call('pexpire', KEYS[2], 0)
  return done
end
if tonumber(count) == 1 then
  redis.pcall(ARGV[5], ARGV[3], ARGV[4])
end
return left
