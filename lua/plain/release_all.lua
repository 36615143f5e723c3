-- plain/release_all.lua
-- Releases several locks with a hold count of one, and publishes a message for each.
--
-- KEYS[*] lock hashes, all different: owner id -> hold count
-- ARGV[*] for each key in order: owner id, channel (empty = publish nothing); at the end message, command that publishes
--
-- reply: {answer for each key in order}; an answer is
--        {1, n} = done, n clients received the message (-1 = Redis refused to publish)
--        | {0} = lost, the lock is free | {2} = lost, another owner holds the lock
local message, publish = ARGV[#ARGV - 1], ARGV[#ARGV]
local answers = {}
local refused

local function release(key, owner, channel)
  -- A key that is not a lock must not stop the release of the other keys.
  local deleted = redis.pcall('hdel', key, owner)
  if type(deleted) == 'table' then
    if not string.find(deleted.err, 'WRONGTYPE', 1, true) then
      refused = refused or deleted
    end
    return {2}
  end
  if deleted == 0 then
    return {redis.call('exists', key) * 2}
  end
  -- The lock is free even if the message is refused; waiters also ask without a message.
  if channel == '' or redis.pcall('exists', key) == 1 then
    return {1, 0}
  end
  local receivers = redis.pcall(publish, channel, message)
  if type(receivers) ~= 'number' then
    receivers = -1
  end
  return {1, receivers}
end

for i, key in ipairs(KEYS) do
  answers[i] = release(key, ARGV[2 * i - 1], ARGV[2 * i])
end
-- A lock that the user may not release is still held; the request can be repeated.
return refused or answers
