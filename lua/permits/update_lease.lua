-- permits/update_lease.lua
-- Sets the lease of a permit of whatever holder, counted from now.
--
-- KEYS[1] sorted set: permit id -> server time in ms at which the permit expires
-- KEYS[2] idempotency key: the number of the last request with an effect, and its answer
-- ARGV[1] number of this request
-- ARGV[2] time to live of the idempotency key, ms
-- ARGV[3] permit id
-- ARGV[4] lease, ms
--
-- reply: 1 = done | 0 = the permit is unknown or has expired
local number, answer = string.match(redis.call('get', KEYS[2]) or '', '^(%d+) (-?%d+)$')
number = tonumber(number or 0)
if number > tonumber(ARGV[1]) then
  return redis.error_reply('LATE a later request of this client was served before')
end
if number == tonumber(ARGV[1]) then
  return tonumber(answer)
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = redis.call('zscore', KEYS[1], ARGV[3])
if not ends or tonumber(ends) <= now then
  return 0
end
redis.call('set', KEYS[2], string.format('%s 1', ARGV[1]), 'PX', ARGV[2])
local moved = redis.pcall('zadd', KEYS[1], 'XX', string.format('%.0f', now + ARGV[4]), ARGV[3])
if type(moved) == 'table' then
  redis.call('pexpire', KEYS[2], 0)
  return moved
end
return 1
