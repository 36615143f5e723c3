-- plain/release.lua
-- Releases one hold count: writes the remaining count, or deletes the lock and publishes a message.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] in an election: leader hash, which goes with the lock
-- ARGV[1] owner id
-- ARGV[2] remaining hold count, absolute
-- ARGV[3] lease for the remaining hold counts, ms
-- ARGV[4] channel; empty = publish nothing
-- ARGV[5] message
-- ARGV[6] command that publishes
-- ARGV[7] in an election: channel of the leader
--
-- reply: {1, n} = done, n clients received the message (-1 = Redis refused to publish)
--        | {0} = lost, the lock is free | {2} = lost, another owner holds the lock
if tonumber(ARGV[2]) > 0 then
  if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return {redis.call('exists', KEYS[1]) * 2}
  end
  -- The time to live is set first: after this first write, a full memory does not refuse the hold count.
  redis.call('pexpire', KEYS[1], ARGV[3])
  redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
  return {1, 0}
end
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
  return {redis.call('exists', KEYS[1]) * 2}
end
if KEYS[2] then
  redis.pcall('del', KEYS[2])
  redis.pcall(ARGV[6], ARGV[7], '0')
end
-- The lock is free even if the message is refused; waiters also ask without a message.
if ARGV[4] == '' or redis.pcall('exists', KEYS[1]) == 1 then
  return {1, 0}
end
local receivers = redis.pcall(ARGV[6], ARGV[4], ARGV[5])
if type(receivers) ~= 'number' then
  receivers = -1
end
return {1, receivers}
