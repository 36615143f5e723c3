-- token/acquire.lua
-- Takes the lock for a new hold if the lock is free.
--
-- KEYS[1] lock: the value of the holder
-- ARGV[1] lease, ms
-- ARGV[2] value, used for this hold only
-- ARGV[3] 1 = a key without expiry gets the lease
--
-- reply: {1} = granted | {0, ms} = busy, with the time to live of the lock (-1 = no expiry)
--        | {2} = the name belongs to another kind of lock
local holder = redis.pcall('get', KEYS[1])
if not holder then
  redis.call('set', KEYS[1], ARGV[2], 'NX', 'PX', ARGV[1])
  -- A user who may not release must not take the lock: a release reads the value and sets the expiry.
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
-- An earlier copy of this request was granted and its reply was lost: grant again.
if holder == ARGV[2] then
  redis.call('pexpire', KEYS[1], math.max(tonumber(ARGV[1]), ttl_ms))
  return {1}
end
if ttl_ms == -1 and ARGV[3] == '1' then
  redis.call('pexpire', KEYS[1], ARGV[1])
  ttl_ms = tonumber(ARGV[1])
end
return {0, ttl_ms}
