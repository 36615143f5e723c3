-- read_write/acquire_read.lua
-- Takes the read side if the lock has no writer.
--
-- KEYS[1] lock hash: 'mode' -> read or write, owner id -> read count, owner id:write -> write count
-- KEYS[2] key of the first read hold of this owner, with the time to live of that hold
-- ARGV[1] lease, ms
-- ARGV[2] owner id, used for this hold only
--
-- reply: {1} = granted | {0, ms} = busy, with the time to live of the lock (-1 = no expiry)
--        | {2} = the name belongs to another kind of lock
-- A read-write lock has a mode, and owners: an id, a colon, a number, perhaps the id of a transaction. A user who may
-- not read fields is told by the mode only.
local function is_other_kind(mode)
  if mode ~= 'read' and mode ~= 'write' then
    return true
  end
  for _, field in ipairs(redis.pcall('hrandfield', KEYS[1], 4)) do
    if field ~= 'mode' and not string.find((string.gsub(field, ':write', '')), ':%-?%d[%d.]*%f[:%z]:?%x*$') then
      return true
    end
  end
end

local mode = redis.call('hget', KEYS[1], 'mode')
if (mode or redis.call('exists', KEYS[1]) == 1) and is_other_kind(mode) then
  return {2}
end
if mode == 'write' then
  return {0, redis.call('pttl', KEYS[1])}
end
-- The reads precede the first write: after a refused read nothing is left behind.
local ttl_ms = redis.call('pttl', KEYS[1])
-- A time to live is only raised: a copy of this request may run late, after an extension.
local lease_ms = math.max(tonumber(ARGV[1]), redis.call('pttl', KEYS[2]))
-- A user who may not release must not take the lock: a release begins with `hgetall` and writes with `hdel`.
if redis.call('exists', KEYS[2]) == 0 then
  redis.call('hgetall', KEYS[2])
end
redis.call('set', KEYS[2], 1, 'px', lease_ms)
local gives_back = redis.pcall('hdel', KEYS[1], '')
if type(gives_back) == 'table' then
  redis.call('pexpire', KEYS[2], 0)
  return gives_back
end
redis.call('hset', KEYS[1], 'mode', 'read', ARGV[2], 1)
if ttl_ms < tonumber(ARGV[1]) then
  local set = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(set) == 'table' then
    -- A user who may not set the expiry must not take the lock: a lock without expiry could block for ever.
    redis.call('hdel', KEYS[1], ARGV[2])
    if not mode then
      redis.call('hdel', KEYS[1], 'mode')
    end
    redis.pcall('del', KEYS[2])
    return set
  end
end
return {1}
