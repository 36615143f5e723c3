-- permits/release.lua
-- Gives the permits of one hold back, and publishes the number of free permits.
--
-- KEYS[1] counter of free permits
-- KEYS[2] sorted set: permit id -> server time in ms at which the permit expires
-- ARGV[1] channel
-- ARGV[2] command that publishes
-- ARGV[*] permit ids
--
-- reply: {1, n} = done, n clients received the message (-1 = Redis refused to publish)
--        | {0} = lost, some or all permits were not taken any more; the others were given back
-- After this first write, which removes nothing, a full memory does not refuse the rest.
redis.call('zrem', KEYS[2], '')
local wanted, removed = #ARGV - 2, 0
-- Without a counter there is no semaphore to which permits could return. A user who may not give the permits back must
-- not end them.
local free = redis.call('exists', KEYS[1]) == 1 and redis.call('incrby', KEYS[1], wanted)
for i = 3, #ARGV do
  removed = removed + redis.call('zrem', KEYS[2], ARGV[i])
end
if free and removed < wanted then
  free = redis.call('incrby', KEYS[1], removed - wanted)
end
local receivers = 0
-- The permits are free even if the message is refused; waiters also ask without a message.
if free and free > 0 and removed > 0 then
  receivers = redis.pcall(ARGV[2], ARGV[1], free)
  if type(receivers) ~= 'number' then
    receivers = -1
  end
end
if removed < wanted then
  return {0}
end
return {1, receivers}
