-- read_write/look.lua
-- Checks whether an owner still holds either side, and raises the times to live that a reader of Redisson lowered.
--
-- KEYS[1] lock hash: 'mode' -> read or write, owner id -> read count, owner id:write -> write count
-- ARGV[1] owner id
-- ARGV[2] time to live that the owner counts on, ms
-- ARGV[3] key of the first read hold of this owner, which lives as long as any of its others
--
-- reply: 1 = held | 0 = lost, the lock is free | 2 = lost, another owner holds the lock
if redis.call('hexists', KEYS[1], ARGV[1]) == 0 then
  return redis.call('hexists', KEYS[1], ARGV[1] .. ':write') == 1 and 1 or redis.call('exists', KEYS[1]) * 2
end
if redis.call('hget', KEYS[1], 'mode') ~= 'read' then
  return 1
end
-- The renewal of a reader of Redisson sets the time to live of the lock, in 3.52.0 also that of every read hold; the
-- lease of its multi-lock sets that of the lock. The lock is held, whatever Redis refuses here.
for _, key in ipairs({KEYS[1], ARGV[3]}) do
  local ttl_ms = redis.pcall('pttl', key)
  if type(ttl_ms) == 'number' and ttl_ms >= 0 and ttl_ms < tonumber(ARGV[2]) then
    redis.pcall('pexpire', key, ARGV[2])
    -- The read follows the write, so that a connection with tracking is told of later changes to the key.
    redis.pcall('pttl', key)
  end
end
return 1
