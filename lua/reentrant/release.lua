-- reentrant/release.lua
-- Gives one hold back: writes the count that remains, or with none left opens the lock and tells waiters.
--
-- KEYS[1] lock hash: owner id -> hold count
-- ARGV[1] owner id
-- ARGV[2] hold count that remains, absolute
-- ARGV[3] lease for the remaining holds, ms
-- ARGV[4] channel; empty where nobody is told
-- ARGV[5] message
-- ARGV[6] command that publishes
--
-- reply: {1, n} = done, n clients were told (-1 = telling them was refused)
--        | {0} = lost, nobody holds it | {2} = lost, somebody else has it
if tonumber(ARGV[2]) > 0 then
  if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
    return {redis.call('exists', KEYS[1]) * 2}
  end
  -- First the time to live: after it a full memory does not refuse the count.
  redis.call('pexpire', KEYS[1], ARGV[3])
  redis.call('hset', KEYS[1], ARGV[1], ARGV[2])
  return {1, 0}
end
if redis.call('hdel', KEYS[1], ARGV[1]) == 0 then
  return {redis.call('exists', KEYS[1]) * 2}
end
-- The lock is open whatever becomes of the rest; waiters also ask by themselves.
if ARGV[4] == '' or redis.pcall('exists', KEYS[1]) == 1 then
  return {1, 0}
end
local told = redis.pcall(ARGV[6], ARGV[4], ARGV[5])
if type(told) ~= 'number' then
  told = -1
end
return {1, told}
