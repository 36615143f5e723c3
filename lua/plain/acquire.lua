-- plain/acquire.lua
-- Takes the lock for a new hold if the lock is free.
--
-- KEYS[1] lock hash: owner id -> hold count
-- ARGV[1] lease, ms
-- ARGV[2] owner id, used for this hold only
--
-- reply: {1} = granted | {0, ms} = busy, with the time to live of the lock (-1 = no expiry)
--        | {2} = the key is another kind of lock, or no lock
if redis.call('exists', KEYS[1]) == 0 then
  redis.call('hset', KEYS[1], ARGV[2], 1)
  local set = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(set) == 'table' then
    -- A user who may not set the expiry must not take the lock: a lock without expiry could block for ever.
    redis.call('hdel', KEYS[1], ARGV[2])
    return set
  end
  -- A user who may not release must not take the lock. This check follows the first write: if it came before, a full
  -- memory would not refuse the first write any more.
  local gives_back = redis.pcall('hdel', KEYS[1], '')
  if type(gives_back) == 'table' then
    redis.call('pexpire', KEYS[1], 0)
    return gives_back
  end
  return {1}
end
-- An earlier copy of this request was granted and its reply was lost: grant again.
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  local lease_ms = math.max(tonumber(ARGV[1]), redis.call('pttl', KEYS[1]))
  redis.call('pexpire', KEYS[1], lease_ms)
  redis.call('hset', KEYS[1], ARGV[2], 1)
  return {1}
end
-- A lock is a hash of one field, its owner: an id, a colon, a number, perhaps the id of a transaction. A user who may
-- not read fields is told of a lock with sides only.
local fields = redis.pcall('hrandfield', KEYS[1], 2)
local is_other
if fields.err then
  is_other = redis.call('hexists', KEYS[1], 'mode') == 1
else
  is_other = #fields ~= 1 or not string.find(fields[1], ':%-?%d[%d.]*%f[:%z]:?%x*$')
end
if is_other then
  return {2}
end
return {0, redis.call('pttl', KEYS[1])}
