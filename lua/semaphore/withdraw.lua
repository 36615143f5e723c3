-- semaphore/withdraw.lua
-- Closes a request that was given up, and gives back the permits that the request took.
--
-- KEYS[1] counter of free permits
-- KEYS[2] idempotency key: the number of the last request with an effect, and its answer
-- ARGV[1] number of this request
-- ARGV[2] time to live of the idempotency key, ms
-- ARGV[3] number of the request that was given up
-- ARGV[4] channel
-- ARGV[5] command that publishes
--
-- reply: the number of permits that were given back
local number, answer = string.match(redis.call('get', KEYS[2]) or '', '^(%d+) (-?%d+)$')
number = tonumber(number or 0)
if number > tonumber(ARGV[1]) then
  return redis.error_reply('LATE a later request of this client was served before')
end
if number == tonumber(ARGV[1]) then
  return tonumber(answer)
end
local taken = 0
if number == tonumber(ARGV[3]) and redis.call('exists', KEYS[1]) == 1 then
  taken = tonumber(answer)
end
-- After this first write, a full memory does not refuse the rest.
redis.call('pexpire', KEYS[2], ARGV[2])
if taken > 0 then
  local free = redis.call('incrby', KEYS[1], taken)
  -- Listeners of Redisson fail on a negative number.
  if free > 0 then
    redis.pcall(ARGV[5], ARGV[4], free)
  end
end
redis.call('set', KEYS[2], string.format('%s %d', ARGV[1], taken), 'PX', ARGV[2])
return taken
