-- reentrant/renew.lua
-- Raises the time to live of each lock whose owner still holds it.
--
-- KEYS[*] lock hashes: owner id -> hold count
-- ARGV[*] for each key in order: owner id, lease in ms
--
-- reply: {server time in ms, answer for each key in order}; an answer is
--        1 = renewed | 0 = lost, nobody holds it | 2 = lost, somebody else has it | text of an error
local now = redis.call('time')
local answers = {now[1] * 1000 + math.floor(now[2] / 1000)}

local function renew(key, owner, lease_ms)
  -- One key that is no lock must not stop the others.
  local held = redis.pcall('hexists', key, owner)
  if type(held) == 'table' then
    return held.err
  end
  if held == 0 then
    return redis.call('exists', key) * 2
  end
  if redis.call('pttl', key) < lease_ms then
    local set = redis.pcall('pexpire', key, lease_ms)
    if type(set) == 'table' then
      return set.err
    end
    -- Read after it was written: so a connection with tracking hears of what happens to it next.
    redis.call('pttl', key)
  end
  return 1
end

for i, key in ipairs(KEYS) do
  answers[i + 1] = renew(key, ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
end
return answers
