-- read_write/release.lua
-- Releases one hold count of either side: writes the remaining counts, admits readers when the writer releases, and
-- deletes the lock when no live hold is left.
--
-- KEYS[1] lock hash: 'mode' -> read or write, owner id -> read count, owner id:write -> write count
-- KEYS[*] keys of the remaining read holds of this owner; on a cluster then the keys of the read holds of other owners
-- ARGV[1] owner id
-- ARGV[2] remaining write count, absolute
-- ARGV[3] remaining read count, absolute
-- ARGV[4] lease for the remaining hold counts, ms
-- ARGV[5] prefix of the keys of all read holds; owner id, ':rwlock_timeout:' and a number follow
-- ARGV[6] whether only keys in KEYS may be looked at: 1 on a cluster, else 0
-- ARGV[7] channel
-- ARGV[8] command that publishes
--
-- reply: {1, n} = done, n clients received the message (-1 = Redis refused to publish)
--        | {0} = lost, the lock is free | {2} = lost, another owner holds the lock
--        | {3, owner id, read count, ..} = nothing was done: read holds of other owners are not in KEYS
local lock, owner, writer = KEYS[1], ARGV[1], ARGV[1] .. ':write'
local writes, reads, lease_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])

local function hold_key(of_owner, number)
  return ARGV[5] .. of_owner .. ':rwlock_timeout:' .. number
end

-- The release stands even if the message is refused; waiters also ask without a message.
local function publish(message)
  local receivers = redis.pcall(ARGV[8], ARGV[7], message)
  return type(receivers) == 'number' and receivers or -1
end

-- All reads precede the first write: after a refused read the lock is unchanged.
local fields = redis.call('hgetall', lock)
local had_writes, had_reads
local others = {}
-- While the slot of the lock migrates, a key may be on another server, and looks as if it had expired.
local known, unknown = {}, {3}
for _, key in ipairs(KEYS) do
  known[key] = true
end
-- The read side lives as long as the longest read hold: of this owner by the lease, of others by their keys.
local longest_ms = reads > 0 and lease_ms or 0
for f = 1, #fields, 2 do
  local field, count = fields[f], tonumber(fields[f + 1])
  if field == writer then
    had_writes = count
  elseif field == owner then
    had_reads = count
  elseif writes == 0 and string.find(field, ':%-?%d[%d.]*%f[:%z]:?%x*$') then
    table.insert(others, field)
    if ARGV[6] == '1' and (count or 0) > 0 and not known[hold_key(field, count)] then
      table.insert(unknown, field)
      table.insert(unknown, count)
    else
      for i = count or 0, 1, -1 do
        longest_ms = math.max(longest_ms, redis.call('pttl', hold_key(field, i)))
      end
    end
  end
end
-- A writer may read, also where a late release of its inner reading has taken that away.
if not (had_writes or had_reads) or (writes > 0 and not had_writes) then
  return {#fields > 0 and 2 or 0}
end
if #unknown > 1 then
  return unknown
end

-- A key that cannot be deleted expires and is never read.
local function forget_reads()
  for i = reads + 1, had_reads or 0 do
    redis.pcall('del', hold_key(owner, i))
  end
end

if writes == 0 and longest_ms <= 0 then
  redis.call('hdel', lock, 'mode', writer, owner)
  -- The fields of expired readers.
  for _, field in ipairs(others) do
    redis.call('hdel', lock, field)
  end
  forget_reads()
  return {1, publish(had_writes and '1' or '0')}
end

-- The time to live is set first: after this first write, a full memory does not refuse the rest.
redis.call('pexpire', lock, writes > 0 and lease_ms or longest_ms)
for i = 1, reads do
  -- A read hold that expired while its owner wrote is restored: no other owner has written since.
  redis.call('set', KEYS[i + 1], 1, 'px', lease_ms)
end
forget_reads()
if writes > 0 then
  redis.call('hset', lock, writer, writes)
elseif had_writes then
  redis.call('hdel', lock, writer)
end
if reads > 0 then
  redis.call('hset', lock, owner, reads)
elseif had_reads then
  redis.call('hdel', lock, owner)
end
if writes == 0 and had_writes then
  redis.call('hset', lock, 'mode', 'read')
  return {1, publish('1')}
end
return {1, 0}
