-- read_write/force_release.lua
-- Releases the lock if this side is held, of whatever owner, with the read holds of a writer, and publishes a message.
--
-- KEYS[1] lock hash: 'mode' -> read or write, owner id -> read count, owner id:write -> write count
-- ARGV[1] side to release: read or write
-- ARGV[2] channel
-- ARGV[3] message
-- ARGV[4] command that publishes
--
-- reply: 1 = the lock was held | 0 = the lock was free | 2 = the key is another kind of lock, or no lock
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
  return 0
end
local mode = redis.call('hget', KEYS[1], 'mode')
if is_other_kind(mode) then
  return 2
end
if mode ~= ARGV[1] then
  return 0
end
redis.call('del', KEYS[1])
redis.pcall(ARGV[4], ARGV[2], ARGV[3])
return 1
