-- semaphore/drain.lua
-- Takes all free permits.
--
-- KEYS[1] counter of free permits
-- KEYS[2] idempotency key: the number of the last request with an effect, and its answer
-- ARGV[1] number of this request
-- ARGV[2] time to live of the idempotency key, ms
--
-- reply: the number of permits that were taken
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
if free <= 0 then
  return 0
end
redis.call('set', KEYS[2], string.format('%s %d', ARGV[1], free), 'PX', ARGV[2])
local left = redis.pcall('incrby', KEYS[1], -free)
if type(left) == 'table' then
  redis.call('pexpire', KEYS[2], 0)
  return left
end
return free
