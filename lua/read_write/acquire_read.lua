-- read_write/acquire_read.lua
-- Takes the lock for reading if nobody writes.
--
-- KEYS[1] lock hash: 'mode' -> read or write, owner id -> read count, owner id:write -> write count
-- KEYS[2] key of this owner's first read hold; it lives as long as that is promised
-- ARGV[1] lease, ms
-- ARGV[2] owner id, drawn for this hold alone
--
-- reply: {1} = granted | {0, ms} = busy, and the time to live of whoever writes (-1 = without end)
--        | {2} = another kind of lock has this name
local mode = redis.call('hget', KEYS[1], 'mode')
if not mode and redis.call('exists', KEYS[1]) == 1 then
  return {2}
end
if mode == 'write' then
  return {0, redis.call('pttl', KEYS[1])}
end
-- Questions first, then the hold key: where one of them is not allowed, nothing is left behind.
local ttl_ms = redis.call('pttl', KEYS[1])
-- Not allowed to give it back, not allowed to take it: a release begins with this one, too, and writes by the other.
if redis.call('exists', KEYS[2]) == 0 then
  redis.call('hgetall', KEYS[2])
end
redis.call('set', KEYS[2], 1, 'px', ARGV[1])
local gives_back = redis.pcall('hdel', KEYS[1], '')
if type(gives_back) == 'table' then
  redis.call('pexpire', KEYS[2], 0)
  return gives_back
end
redis.call('hset', KEYS[1], 'mode', 'read', ARGV[2], 1)
if ttl_ms < tonumber(ARGV[1]) then
  local set = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(set) == 'table' then
    -- Not allowed to end it, not allowed to begin it: a lock without end helps nobody.
    redis.call('hdel', KEYS[1], ARGV[2])
    if not mode then
      redis.call('hdel', KEYS[1], 'mode')
    end
    redis.pcall('del', KEYS[2])
    return set
  end
end
return {1}
