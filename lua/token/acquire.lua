-- token/acquire.lua
-- Takes the lock for a new hold if nobody has it.
--
-- KEYS[1] lock: the value of whoever holds
-- ARGV[1] lease, ms
-- ARGV[2] value, this hold's alone
-- ARGV[3] 1 = a lock found without time to live gets the lease
--
-- reply: {1} = granted | {0, ms} = busy, and the time to live of whoever holds (-1 = without end)
--        | {2} = another kind of lock has this name
local holder = redis.pcall('get', KEYS[1])
if not holder then
  redis.call('set', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1])
  -- Not allowed to give it back, not allowed to take it: a release gets the value and ends its time to live.
  local gives_back = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(gives_back) == 'table' then
    redis.call('set', KEYS[1], ARGV[2], 'PX', 1)
    return gives_back
  end
  return {1}
end
if type(holder) == 'table' then
  if redis.call('type', KEYS[1]).ok == 'hash' then
    return {2}
  end
  return holder
end
local ttl_ms = redis.call('pttl', KEYS[1])
-- The same request came before and its answer was lost: grant it again.
if holder == ARGV[2] then
  redis.call('pexpire', KEYS[1], math.max(tonumber(ARGV[1]), ttl_ms))
  return {1}
end
if ttl_ms == -1 and ARGV[3] == '1' then
  redis.call('pexpire', KEYS[1], ARGV[1])
  ttl_ms = tonumber(ARGV[1])
end
return {0, ttl_ms}
