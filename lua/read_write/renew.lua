-- read_write/renew.lua
-- Raises the time to live of each lock whose owner still holds it, and of the owner's read holds.
--
-- KEYS[*] lock hashes: 'mode' -> read or write, owner id -> read count, owner id:write -> write count
-- ARGV[*] for each key in order: owner id, lease in ms, what the keys of the owner's read holds begin with
--
-- reply: {server time in ms, answer for each key in order}; an answer is
--        1 = renewed | 0 = lost, nobody holds it | 2 = lost, somebody else has it | text of an error
local now = redis.call('time')
local answers = {now[1] * 1000 + math.floor(now[2] / 1000)}

local function renew(lock, owner, lease_ms, holds)
  -- One key that is no lock must not stop the others.
  local reads = redis.pcall('hget', lock, owner)
  if type(reads) == 'table' then
    return reads.err
  end
  if not reads and redis.call('hexists', lock, owner .. ':write') == 0 then
    return redis.call('exists', lock) * 2
  end
  -- Always, and first: after it a full memory does not refuse the keys of read holds.
  local raised = redis.pcall('pexpire', lock, math.max(lease_ms, redis.call('pttl', lock)))
  if type(raised) == 'table' then
    return raised.err
  end
  for i = 1, tonumber(reads or 0) do
    -- One that ran out while something else kept the lock is made anew: nobody has written since.
    if redis.call('pttl', holds .. i) < lease_ms then
      local set = redis.pcall('set', holds .. i, 1, 'px', lease_ms)
      if set.err then
        return set.err
      end
    end
  end
  return 1
end

for i, lock in ipairs(KEYS) do
  answers[i + 1] = renew(lock, ARGV[3 * i - 2], tonumber(ARGV[3 * i - 1]), ARGV[3 * i])
end
return answers
