-- read_write/acquire_write.lua
-- Takes the write side if the lock has neither reader nor writer.
--
-- KEYS[1] lock hash: 'mode' -> read or write, owner id -> read count, owner id:write -> write count
-- ARGV[1] lease, ms
-- ARGV[2] owner id with ':write', drawn for this hold alone
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

if redis.call('exists', KEYS[1]) == 0 then
  -- A user who may not release must not take the lock: a release begins with this command.
  redis.call('hgetall', KEYS[1])
  redis.call('hset', KEYS[1], 'mode', 'write', ARGV[2], 1)
  local set = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(set) == 'table' then
    -- A user who may not set the expiry must not take the lock: a lock without expiry could block for ever.
    redis.call('hdel', KEYS[1], 'mode', ARGV[2])
    return set
  end
  -- A release needs this command, too. This check follows the first write: if it came before, a full memory would not
  -- refuse the first write any more.
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
if is_other_kind(redis.call('hget', KEYS[1], 'mode')) then
  return {2}
end
return {0, redis.call('pttl', KEYS[1])}
