-- read_write/renew.lua
-- Raises the time to live of each lock that its owner still holds, and of the read holds of this owner.
--
-- KEYS[*] lock hashes: 'mode' -> read or write, owner id -> read count, owner id:write -> write count; then the keys
--         of the read holds of all owners, in the order of the locks
-- ARGV[*] for each lock in order: owner id, lease in ms, lease in ms for a lock without expiry, number of keys of read
--         holds
--
-- reply: an answer for each lock in order:
--        1 = renewed | 0 = lost, the lock is free | 2 = lost, another owner holds the lock | text of an error
local answers = {}

local function renew(lock, owner, lease_ms, endless_ms, first, last)
  -- A key that is not a lock must not stop the renewal of the other keys.
  local reads = redis.pcall('hget', lock, owner)
  if type(reads) == 'table' then
    return reads.err
  end
  if not reads and redis.call('hexists', lock, owner .. ':write') == 0 then
    return redis.call('exists', lock) * 2
  end
  -- Always set, and first: after this first write, a full memory does not refuse the keys of read holds.
  local ttl_ms = redis.call('pttl', lock)
  local raised = redis.pcall('pexpire', lock, ttl_ms == -1 and endless_ms or math.max(lease_ms, ttl_ms))
  if type(raised) == 'table' then
    return raised.err
  end
  -- The read follows the write, so that a connection with tracking is told of later changes to the key.
  redis.call('pttl', lock)
  -- Other keys are of a re-entry or a release that is under way, and sets the times to live itself.
  for i = first, math.min(last, first - 1 + tonumber(reads or 0)) do
    -- A read hold that expired while another hold kept the lock is restored: no owner has written since.
    if redis.call('pttl', KEYS[i]) < lease_ms then
      local set = redis.pcall('set', KEYS[i], 1, 'px', lease_ms)
      if set.err then
        return set.err
      end
    end
  end
  return 1
end

local locks = #ARGV / 4
local last = locks
for i = 1, locks do
  local first = last + 1
  last = last + tonumber(ARGV[4 * i])
  answers[i] = renew(KEYS[i], ARGV[4 * i - 3], tonumber(ARGV[4 * i - 2]), tonumber(ARGV[4 * i - 1]), first, last)
end
return answers
