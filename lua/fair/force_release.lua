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
-- The first live waiter: its patience has not ended, and its deadline exists and has not passed.
local head, gone, spared = redis.call('lindex', queue, 0), 0, nil
while head do
  local silent = redis.call('zscore', alive, head)
  if tonumber(silent or redis.call('zscore', deadlines, head) or 0) > now then
    break
  end
  spared = spared or silent and gone
  gone = gone + 1
  head = redis.call('lindex', queue, gone)
end
if not head and spared then
  -- All waiters were silent: perhaps the server was out of reach. The first one of this library gets the message.
  head, gone = redis.call('lindex', queue, spared), spared
end
for _ = 1, gone do
  local waiter = redis.call('lpop', queue)
  redis.call('zrem', deadlines, waiter)
  redis.call('zrem', alive, waiter)
end
if head then
  redis.pcall(ARGV[3], ARGV[1] .. ':' .. head, ARGV[2])
end
return 1
