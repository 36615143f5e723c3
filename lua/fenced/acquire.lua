-- fenced/acquire.lua
-- Takes the lock for a new hold if nobody has it, and draws its fencing token.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] the last token
-- ARGV[1] lease, ms
-- ARGV[2] owner id, drawn for this hold alone
--
-- reply: {1, token} = granted | {0, ms} = busy, and the time to live of whoever holds (-1 = without end)
--        | {2} = another kind of lock has this name
-- The server's clock is a floor under the counter: tokens go on after the counter was lost.
local function draw()
  local time = redis.call('time')
  local floor = time[1] * 1000000 + time[2]
  local token = math.max((tonumber(redis.call('get', KEYS[2])) or 0) + 1, floor)
  redis.call('set', KEYS[2], string.format('%.0f', token))
  return token
end

if redis.call('exists', KEYS[1]) == 0 then
  local token = draw()
  redis.call('hset', KEYS[1], ARGV[2], 1)
  local set = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(set) == 'table' then
    -- Not allowed to end it, not allowed to begin it: a lock without end helps nobody.
    redis.call('hdel', KEYS[1], ARGV[2])
    return set
  end
  -- Not allowed to give it back, not allowed to take it. Asked for after the first write: before it, a full memory
  -- would not refuse that one any more.
  local gives_back = redis.pcall('hdel', KEYS[1], '')
  if type(gives_back) == 'table' then
    redis.call('pexpire', KEYS[1], 0)
    return gives_back
  end
  return {1, token}
end
-- The same request came before and its answer was lost: grant it again. Nobody drew a token since.
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  local lease_ms = math.max(tonumber(ARGV[1]), redis.call('pttl', KEYS[1]))
  redis.call('pexpire', KEYS[1], lease_ms)
  redis.call('hset', KEYS[1], ARGV[2], 1)
  return {1, tonumber(redis.call('get', KEYS[2])) or draw()}
end
if redis.call('hexists', KEYS[1], 'mode') == 1 then
  return {2}
end
return {0, redis.call('pttl', KEYS[1])}
