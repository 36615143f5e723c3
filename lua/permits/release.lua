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
local held = {}
for i = 3, #ARGV do
  if redis.call('zscore', KEYS[2], ARGV[i]) then
    held[#held + 1] = ARGV[i]
  end
end
-- After this first write, which removes nothing, a full memory does not refuse the rest.
redis.call('zrem', KEYS[2], '')
-- Without a counter there is no semaphore to which permits could return. A user who may not give the permits back must
-- not end them.
local free = #held > 0 and redis.call('exists', KEYS[1]) == 1 and redis.call('incrby', KEYS[1], #held)
-- The last permit deletes the set, which is at another server then, if its slot moves.
for _, id in ipairs(held) do
  redis.call('zrem', KEYS[2], id)
end
local receivers = 0
-- The permits are free even if the message is refused; waiters also ask without a message.
if free and free > 0 then
  receivers = redis.pcall(ARGV[2], ARGV[1], free)
  if type(receivers) ~= 'number' then
    receivers = -1
  end
end
if #held < #ARGV - 2 then
  return {0}
end
return {1, receivers}
