-- once/delete.lua
-- Deletes a counter with the keys beside it, and publishes a message.
--
-- KEYS[1] counter
-- KEYS[2] idempotency key: the number of the last request with an effect, and its answer
-- KEYS[*] keys beside the counter
-- ARGV[1] number of this request
-- ARGV[2] time to live of the idempotency key, ms
-- ARGV[3] channel; empty = publish nothing
-- ARGV[4] message
-- ARGV[5] command that publishes
--
-- reply: 1 = deleted | 0 = there was none
local number = string.match(redis.call('get', KEYS[2]) or '', '^(%d+) ')
number = tonumber(number or 0)
if number > tonumber(ARGV[1]) then
  return redis.error_reply('LATE a later request of this client was served before')
end
if number == tonumber(ARGV[1]) then
  return 1
end
-- A key that is no counter is data, or a lock: it stays. The keys beside a counter are sorted sets.
if not string.match(redis.call('get', KEYS[1]) or '0', '^%-?%d+$') then
  return redis.error_reply('WRONGTYPE the key holds no number')
end
for i = 3, #KEYS do
  redis.call('zscore', KEYS[i], '')
end
local keys = {KEYS[1], unpack(KEYS, 3)}
if redis.call('exists', unpack(keys)) == 0 then
  return 0
end
-- After this first write, a full memory does not refuse the rest.
redis.call('pexpire', KEYS[2], ARGV[2])
redis.call('set', KEYS[2], string.format('%s 1', ARGV[1]), 'PX', ARGV[2])
local deleted = redis.pcall('del', unpack(keys))
if type(deleted) == 'table' then
  redis.call('pexpire', KEYS[2], 0)
  return deleted
end
if ARGV[3] ~= '' then
  redis.pcall(ARGV[5], ARGV[3], ARGV[4])
end
return 1
