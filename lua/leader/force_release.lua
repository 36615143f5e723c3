-- leader/force_release.lua
-- Ends the leadership of whatever owner, and publishes a message to candidates and one to observers.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] leader hash: owner, token, since, candidate
-- ARGV[1] channel of the leader
-- ARGV[2] channel of the lock
-- ARGV[3] message of the lock
-- ARGV[4] command that publishes
--
-- reply: 1 = the lock was held | 0 = the lock was free
--        | 2 = the key is another kind of lock, or no lock
local fields = redis.call('hrandfield', KEYS[1], 2)
if #fields == 0 then
  return 0
end
-- A lock is a hash of one field, its owner: an id, a colon, a number.
if #fields > 1 or not string.find(fields[1], ':%-?%d[%d.]*:?%x*$') then
  return 2
end
redis.call('del', KEYS[1], KEYS[2])
redis.pcall(ARGV[4], ARGV[1], '0')
redis.pcall(ARGV[4], ARGV[2], ARGV[3])
return 1
