-- plain/hand_on.lua
-- Gives the lock to another hold of the same process, without a message.
--
-- KEYS[1] lock hash: owner id -> hold count
-- ARGV[1] owner id that has the lock
-- ARGV[2] owner id that gets the lock, used for this hold only
-- ARGV[3] lease of the new hold, ms
--
-- reply: 1 = done | 0 = lost, the lock is free | 2 = lost, another owner holds the lock
if redis.call('hexists', KEYS[1], ARGV[1]) == 1 then
  redis.call('hset', KEYS[1], ARGV[2], 1)
  local set = redis.pcall('pexpire', KEYS[1], ARGV[3])
  if type(set) == 'table' then
    redis.call('hdel', KEYS[1], ARGV[2])
    return set
  end
  redis.call('hdel', KEYS[1], ARGV[1])
  return 1
end
-- An earlier copy of this request gave the lock away and its reply was lost.
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  redis.call('pexpire', KEYS[1], math.max(tonumber(ARGV[3]), redis.call('pttl', KEYS[1])))
  return 1
end
return redis.call('exists', KEYS[1]) * 2
