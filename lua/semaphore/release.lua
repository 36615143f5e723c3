-- semaphore/release.lua
-- Gives permits back, or adds permits (also expiring ones), and publishes the number of free permits if there are any.
--
-- KEYS[1] counter of free permits
-- KEYS[2] idempotency key: the number of the last request with an effect, and its answer
-- ARGV[1] number of this request
-- ARGV[2] time to live of the idempotency key, ms
-- ARGV[3] permits; negative = free permits are taken away
-- ARGV[4] 1 = the semaphore is made if there is none | 0 = only an existing semaphore
--         | 2 = likewise, by the holder of the permits, which always come back
-- ARGV[5] channel
-- ARGV[6] command that publishes
--
-- reply: {1, free permits, n} = done, n clients received the message (-1 = Redis refused to publish)
--        | {0} = there is no semaphore
local number, before = tonumber(ARGV[1]), redis.call('get', KEYS[2])
local last = before and tonumber(string.match(before, '^(%d+) ')) or 0
if last > number then
  return redis.error_reply('LATE a later request of this client was served before')
end
local free = redis.call('get', KEYS[1])
if last == number then
  return {1, tonumber(free or 0) or 0, -1}
end
if not free and ARGV[4] ~= '1' then
  return {0}
end
if not string.match(free or '0', '^%-?%d+$') then
  return redis.error_reply('WRONGTYPE the key holds no number')
end
if ARGV[4] ~= '2' and tonumber(ARGV[3]) > 0 and (free or 0) + ARGV[3] > 2147483647 then
  return redis.error_reply('OVERFLOW Redisson cannot count so many free permits')
end
-- After this first write, a full memory does not refuse the release.
redis.call('pexpire', KEYS[2], ARGV[2])
redis.call('set', KEYS[2], string.format('%s %s', ARGV[1], ARGV[3]), 'PX', ARGV[2])
free = redis.pcall('incrby', KEYS[1], ARGV[3])
if type(free) == 'table' then
  redis.call('pexpire', KEYS[2], 0)
  return free
end
local receivers = 0
-- Listeners of Redisson fail on a negative number.
if free > 0 then
  receivers = redis.pcall(ARGV[6], ARGV[5], free)
  if type(receivers) ~= 'number' then
    receivers = -1
  end
end
return {1, free, receivers}
