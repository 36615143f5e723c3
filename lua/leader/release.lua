-- leader/release.lua
-- Ends the leadership of one owner, and publishes a message to candidates and one to observers.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] leader hash: owner, token, since, candidate
-- ARGV[1] owner id
-- ARGV[2] channel of the leader
-- ARGV[3] channel of the lock
-- ARGV[4] message of the lock
-- ARGV[5] command that publishes
--
-- reply: {1, n} = done, n clients received the message of the lock (-1 = Redis refused to publish)
--        | {0} = lost, the lock is free | {2} = lost, another owner holds the lock
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
  return {redis.call('exists', KEYS[1]) * 2}
end
redis.pcall('del', KEYS[2])
-- The lock is free even if a message is refused; waiters also ask without a message.
redis.pcall(ARGV[5], ARGV[2], '0')
local receivers = redis.pcall(ARGV[5], ARGV[3], ARGV[4])
if type(receivers) ~= 'number' then
  receivers = -1
end
return {1, receivers}
