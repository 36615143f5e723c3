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
local number, wanted = tonumber(ARGV[1]), tonumber(ARGV[3])
local free = tonumber(string.match(redis.call('get', KEYS[1]) or '0', '^%-?%d+$'))
if not free then
  return redis.error_reply('WRONGTYPE the key holds no number')
end
local suffices = free >= wanted
local before, refused
if suffices then
  -- The write reads what was there before, so a request that takes permits needs no further command for that.
  before = redis.pcall('set', KEYS[2], string.format('%s %s', ARGV[1], ARGV[3]), 'PX', ARGV[2], 'GET')
  refused = type(before) == 'table' and before
end
if refused or not suffices then
  before = redis.call('get', KEYS[2])
end
local last = before and tonumber(string.match(before, '^(%d+) ')) or 0
if last > number then
  if suffices and not refused then
    redis.call('set', KEYS[2], before, 'PX', ARGV[2])
  end
  return redis.error_reply('LATE a later request of this client was served before')
end
-- An earlier copy of this request took the permits, also where a full memory refuses writes by now.
if last == number then
  return {1, free}
end
if refused then
  return refused
end
if not suffices then
  return {0, free}
end
-- The same command gives permits back: a user who may not release must not acquire.
free = redis.pcall('incrby', KEYS[1], -wanted)
if type(free) == 'table' then
  redis.call('pexpire', KEYS[2], 0)
  return free
end
return {1, free}
