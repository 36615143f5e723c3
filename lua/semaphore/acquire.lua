-- semaphore/acquire.lua
-- Takes permits if enough are free.
--
-- KEYS[1] counter of free permits
-- KEYS[2] idempotency key: the number of the last request with an effect, and its answer
-- ARGV[1] number of this request
-- ARGV[2] time to live of the idempotency key, ms
-- ARGV[3] permits
--
-- reply: {1, free permits} = taken | {0, free permits} = not enough are free
local number = string.match(redis.call('get', KEYS[2]) or '', '^(%d+) ')
number = tonumber(number or 0)
if number > tonumber(ARGV[1]) then
  return redis.error_reply('LATE a later request of this client was served before')
end
local free = tonumber(redis.call('get', KEYS[1]) or 0)
if not free then
  return redis.error_reply('WRONGTYPE the key holds no number')
end
if number == tonumber(ARGV[1]) then
  return {1, free}
end
if free < tonumber(ARGV[3]) then
  return {0, free}
end
redis.call('set', KEYS[2], string.format('%s %s', ARGV[1], ARGV[3]), 'PX', ARGV[2])
-- The same command gives permits back: a user who may not release must not acquire.
free = redis.pcall('incrby', KEYS[1], -tonumber(ARGV[3]))
if type(free) == 'table' then
  redis.call('pexpire', KEYS[2], 0)
  return free
end
return {1, free}
