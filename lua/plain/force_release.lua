-- plain/force_release.lua
-- Releases the lock of whatever owner, and publishes a message.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[*] in an election: leader hash, which goes with the lock
-- ARGV[1] channel; empty = publish nothing
-- ARGV[2] message
-- ARGV[3] command that publishes
-- ARGV[4] in an election: channel of the leader
--
-- reply: 1 = the lock was held | 0 = the lock was free
--        | 2 = the key is another kind of lock, or no lock
local fields = redis.call('hrandfield', KEYS[1], 2)
if #fields == 0 then
  return 0
end
-- A lock is a hash of one field, its owner: an id, a colon, a number, perhaps the id of a transaction.
if #fields > 1 or not string.find(fields[1], ':%-?%d[%d.]*%f[:%z]:?%x*$') then
  return 2
end
redis.call('del', unpack(KEYS))
if ARGV[4] then
  redis.pcall(ARGV[3], ARGV[4], '0')
end
if ARGV[1] ~= '' then
  redis.pcall(ARGV[3], ARGV[1], ARGV[2])
end
return 1
