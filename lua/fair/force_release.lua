-- fair/force_release.lua
-- Releases the lock of whatever owner and publishes a message to the first live waiter; the queue stays.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] list of waiting owners, in queue order
-- KEYS[3] sorted set of waiting owners, by the server time in ms at which Redisson drops the waiter
-- KEYS[4] sorted set of waiters of this library, by the server time in ms at which the patience with the waiter ends
-- ARGV[1] channel of the lock; a waiter listens to this channel with ':' and the owner id added
-- ARGV[2] message
-- ARGV[3] command that publishes
--
-- reply: 1 = the lock was held | 0 = the lock was free
--        | 2 = the key is another kind of lock, or no lock
local queue, deadlines, alive = KEYS[2], KEYS[3], KEYS[4]
local fields = redis.call('hrandfield', KEYS[1], 2)
if #fields == 0 then
  return 0
end
-- A lock is a hash of one field, its owner: an id, a colon, a number.
if #fields > 1 or not string.find(fields[1], ':%-?%d[%d.]*%f[:%z]') then
  return 2
end
redis.call('del', KEYS[1])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- Drop the head if its patience ended, its deadline passed, or its deadline is missing.
local head = redis.call('lindex', queue, 0)
while head do
  if tonumber(redis.call('zscore', alive, head) or redis.call('zscore', deadlines, head) or 0) > now then
    redis.pcall(ARGV[3], ARGV[1] .. ':' .. head, ARGV[2])
    break
  end
  redis.call('zrem', deadlines, head)
  redis.call('zrem', alive, head)
  redis.call('lpop', queue)
  head = redis.call('lindex', queue, 0)
end
return 1
