-- read_write/reenter.lua
-- Writes the new counts of an owner that holds either side; never acquires the lock.
--
-- KEYS[1] lock hash: 'mode' -> read or write, owner id -> read count, owner id:write -> write count
-- KEYS[*] keys of the read holds of this owner, as many as the read count
-- ARGV[1] lease, ms; times to live are only raised
-- ARGV[2] owner id
-- ARGV[3] write count, absolute
-- ARGV[4] read count, absolute
-- ARGV[5] lease for a lock without expiry, ms
--
-- reply: 1 = re-entered | 0 = lost, the lock is free | 2 = lost, another owner holds the lock
local lock, owner, writer = KEYS[1], ARGV[2], ARGV[2] .. ':write'
local lease_ms, writes, reads = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4])
local writing = redis.call('hexists', lock, writer) == 1
local reading = redis.call('hexists', lock, owner) == 1
-- A re-entry never starts to write; a writer may start to read.
if (writes > 0 and not writing) or not (writing or reading) then
  return redis.call('exists', lock) * 2
end
-- The times to live are set first: after the first write, a full memory does not refuse the counts.
local ttl_ms = redis.call('pttl', lock)
redis.call('pexpire', lock, ttl_ms == -1 and ARGV[5] or math.max(lease_ms, ttl_ms))
if reads > 0 then
  -- The count is written last: after a refused key the hold is unchanged.
  for i = 1, reads do
    local key = KEYS[i + 1]
    redis.call('set', key, 1, 'px', math.max(lease_ms, redis.call('pttl', key)))
  end
  redis.call('hset', lock, owner, reads)
end
if writes > 0 then
  redis.call('hset', lock, writer, writes)
end
return 1
