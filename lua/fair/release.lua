-- fair/release.lua
-- Releases one hold count, or the hold of whatever owner: writes the remaining count, or deletes the lock and publishes
-- to the next waiter.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] list of waiting owners, in queue order
-- KEYS[3] sorted set of waiting owners, by the server time in ms at which Redisson drops the waiter
-- KEYS[4] sorted set of waiters of this library, by the server time in ms at which the patience with the waiter ends
-- ARGV[1] owner id; no matter if whatever owner loses the lock
-- ARGV[2] remaining hold count, absolute; -1 = whatever owner has the lock loses it
-- ARGV[3] lease for the remaining hold counts, ms
-- ARGV[4] channel of the lock; a waiter listens to this channel with ':' and the owner id added
-- ARGV[5] message
-- ARGV[6] command that publishes
-- ARGV[7] patience, ms: the time that the waiter with the message has to ask, if others wait behind
--
-- reply: {1, n} = done, n clients received the message (-1 = Redis refused to publish)
--        | {0} = lost, the lock is free | {2} = lost, another owner holds the lock, or none: it is no lock of this kind
local lock, queue, deadlines, alive, owner = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[1]
if tonumber(ARGV[2]) > 0 then
  if redis.call('hexists', lock, owner) == 0 then
    return {redis.call('exists', lock) * 2}
  end
  -- The time to live is set first: after this first write, a full memory does not refuse the hold count.
  redis.call('pexpire', lock, ARGV[3])
  redis.call('hset', lock, owner, ARGV[2])
  return {1, 0}
end
if ARGV[2] == '-1' then
  -- A lock is a hash of one field, its owner: an id, a colon, a number, perhaps the id of a transaction.
  local fields = redis.call('hrandfield', lock, 2)
  if #fields > 1 or #fields == 1 and not string.find(fields[1], ':%-?%d[%d.]*%f[:%z]:?%x*$') then
    return {2}
  end
  owner = fields[1] or ''
end
if redis.call('hdel', lock, owner) == 0 then
  return {redis.call('exists', lock) * 2}
end
-- On a cluster this is refused while the slot migrates: a key that was deleted counts as one on the other server.
local left = redis.pcall('exists', lock)
if left == 1 then
  return {1, 0}
elseif type(left) == 'table' and not string.find(left.err, 'non local key', 1, true) then
  return left
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- While one waiter of this library is alive, a time in which none of them asked counts against none: it was an outage.
local head, head_ends, gone, spared = redis.call('lindex', queue, 0), 0, 0, nil
local last_ends = head and tonumber(redis.call('zrevrange', alive, 0, 0, 'withscores')[2]) or 0
local silence_ms = now + ARGV[7] - last_ends
local judged_at = last_ends > now and silence_ms > ARGV[7] / 2 and now - silence_ms or now
-- The first live waiter: its patience has not ended, and its deadline exists and has not passed.
while head do
  local silent = redis.call('zscore', alive, head)
  head_ends = tonumber(silent or redis.call('zscore', deadlines, head) or 0)
  if head_ends > (silent and judged_at or now) then
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
if not head then
  return {1, 0}
end
-- A lone waiter delays no other waiter, and a waiter that joins behind counts from this deadline. Waiters of Redisson
-- sleep for longer than the patience, so one that is late is not dropped for their sake.
if head_ends > now and last_ends > now and redis.call('llen', queue) > 1 then
  local comes_by = math.min(head_ends, now + tonumber(ARGV[7]))
  redis.call('zadd', deadlines, comes_by, head)
  redis.call('zadd', alive, 'xx', comes_by, head)
end
local receivers = redis.pcall(ARGV[6], ARGV[4] .. ':' .. head, ARGV[5])
if type(receivers) ~= 'number' then
  receivers = -1
end
return {1, receivers}
