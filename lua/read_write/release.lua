-- read_write/release.lua
-- Gives one hold back on either side: writes the counts that remain, lets readers in when writing ends, opens the
-- lock when nobody alive is left.
--
-- KEYS[1] lock hash: 'mode' -> read or write, owner id -> read count, owner id:write -> write count
-- ARGV[1] owner id
-- ARGV[2] write count that remains, absolute
-- ARGV[3] read count that remains, absolute
-- ARGV[4] lease for the remaining holds, ms
-- ARGV[5] what the keys of all read holds begin with; owner id, ':rwlock_timeout:' and a number follow
-- ARGV[6] channel
-- ARGV[7] command that publishes
--
-- reply: {1, n} = done, n clients were told (-1 = telling them was refused)
--        | {0} = lost, nobody holds it | {2} = lost, somebody else has it
local lock, owner, writer = KEYS[1], ARGV[1], ARGV[1] .. ':write'
local writes, reads, lease_ms = tonumber(ARGV[2]), tonumber(ARGV[3]), tonumber(ARGV[4])
local had_writes = redis.call('hget', lock, writer)
local had_reads = redis.call('hget', lock, owner)

local function hold_key(of_owner, number)
  return ARGV[5] .. of_owner .. ':rwlock_timeout:' .. number
end

-- Whatever becomes of the message, what it tells is so; waiters also ask by themselves.
local function tell(message)
  local told = redis.pcall(ARGV[7], ARGV[6], message)
  return type(told) == 'number' and told or -1
end

if not (had_writes or had_reads) or (writes > 0 and not had_writes) or (reads > 0 and not had_reads) then
  return {redis.call('exists', lock) * 2}
end

-- The time to live first: after it a full memory does not refuse the rest.
if writes > 0 or reads > 0 then
  redis.call('pexpire', lock, lease_ms)
end
for i = 1, reads do
  -- One that ran out while writing kept the lock is made anew: nobody else has written since.
  redis.call('set', hold_key(owner, i), 1, 'px', lease_ms)
end
for i = reads + 1, tonumber(had_reads or 0) do
  redis.call('del', hold_key(owner, i))
end
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
if writes > 0 then
  return {1, 0}
end

-- Reading goes on as long as the longest hold of anybody: ours, and theirs by their own keys.
local longest_ms = reads > 0 and lease_ms or 0
local fields = redis.call('hgetall', lock)
for f = 1, #fields, 2 do
  local count = fields[f] ~= 'mode' and fields[f] ~= owner and tonumber(fields[f + 1])
  for i = count or 0, 1, -1 do
    longest_ms = math.max(longest_ms, redis.call('pttl', hold_key(fields[f], i)))
  end
end
if longest_ms > 0 then
  redis.call('pexpire', lock, longest_ms)
  if had_writes then
    redis.call('hset', lock, 'mode', 'read')
    return {1, tell('1')}
  end
  return {1, 0}
end
redis.call('del', lock)
return {1, tell(had_writes and '1' or '0')}
