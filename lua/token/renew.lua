-- token/renew.lua
-- Raises the time to live of each lock that its holder still has.
--
-- KEYS[*] locks: the value of the holder
-- ARGV[*] for each key in order: value, lease in ms
--
-- reply: an answer for each key in order:
--        1 = renewed | 0 = lost, the lock is free | 2 = lost, another owner holds the lock | text of an error
local answers = {}

local function renew(key, value, lease_ms)
  -- A key that is not a lock must not stop the renewal of the other keys.
  local holder = redis.pcall('get', key)
  if type(holder) == 'table' then
    return holder.err
  end
  if holder ~= value then
    return holder and 2 or 0
  end
  if redis.call('pttl', key) < lease_ms then
    local set = redis.pcall('pexpire', key, lease_ms)
    if type(set) == 'table' then
      return set.err
    end
    -- The read follows the write, so that a connection with tracking is told of later changes to the key.
    redis.call('pttl', key)
  end
  return 1
end

for i, key in ipairs(KEYS) do
  answers[i] = renew(key, ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
end
return answers
