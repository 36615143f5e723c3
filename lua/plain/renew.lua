-- plain/renew.lua
-- Raises the time to live of each lock that its owner still holds.
--
-- KEYS[*] lock hashes: owner id -> hold count; in an election, behind them the leader hash of each lock
-- ARGV[*] for each lock in order: owner id, lease in ms
--
-- reply: an answer for each lock in order:
--        1 = renewed | 0 = lost, the lock is free | 2 = lost, another owner holds the lock | text of an error
local answers = {}

local function renew(key, leader, owner, lease_ms)
  -- A key that is not a lock must not stop the renewal of the other keys.
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
    -- The leader hash lives as long as the lock; a reader compares the owners of both.
    if leader then
      redis.pcall('pexpire', leader, lease_ms)
    end
    -- The read follows the write, so that a connection with tracking is told of later changes to the key.
    redis.call('pttl', key)
  end
  return 1
end

local locks = #ARGV / 2
for i = 1, locks do
  answers[i] = renew(KEYS[i], KEYS[locks + i], ARGV[2 * i - 1], tonumber(ARGV[2 * i]))
end
return answers
