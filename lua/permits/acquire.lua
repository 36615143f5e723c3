-- permits/acquire.lua
-- Takes permits if enough are free, after it has taken back permits that expired.
--
-- KEYS[1] counter of free permits
-- KEYS[2] sorted set: permit id -> server time in ms at which the permit expires
-- ARGV[1] time for which the permits are taken, ms
-- ARGV[2] channel
-- ARGV[3] command that publishes
-- ARGV[*] ids of the permits, used for this hold only
--
-- reply: {1} = granted | {0, ms} = busy, with the time until the next permit expires (-1 = none expires)
--        | {2} = the name belongs to another kind of lock
local free = redis.pcall('get', KEYS[1])
if type(free) == 'table' then
  return string.find(free.err, 'WRONGTYPE') and {2} or free
end
if free and not string.match(free, '^%-?%d+$') then
  return {2}
end
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = string.format('%.0f', now + ARGV[1])
-- An earlier copy of this request was granted and its reply was lost: grant again.
-- This copy may run late: some of the permits were given back meanwhile, and a time is only raised.
local is_copy = false
for i = 4, #ARGV do
  is_copy = is_copy or redis.call('zscore', KEYS[2], ARGV[i])
end
if is_copy then
  for i = 4, #ARGV do
    if tonumber(redis.call('zscore', KEYS[2], ARGV[i]) or math.huge) < tonumber(ends) then
      redis.call('zadd', KEYS[2], 'XX', ends, ARGV[i])
    end
  end
  return {1}
end

-- In slices, so that thousands of expired permits neither block the server nor exceed the arguments of a command.
local expired = redis.call('zrangebyscore', KEYS[2], 0, string.format('%.0f', now), 'LIMIT', 0, 500)
if #expired > 0 then
  -- Without a counter there is no semaphore to which permits could return. A user who may not do one of the two must do
  -- neither.
  free = free and redis.call('incrby', KEYS[1], #expired)
  local removed = redis.pcall('zrem', KEYS[2], unpack(expired))
  if type(removed) == 'table' then
    if free then
      redis.call('incrby', KEYS[1], -#expired)
    end
    return removed
  end
  if free and free > 0 then
    redis.pcall(ARGV[3], ARGV[2], free)
  end
end

local wanted = #ARGV - 3
if not free or tonumber(free) < wanted then
  -- The first permit by time; permits of Redisson without a lease have this time and never expire.
  local first = redis.call('zrange', KEYS[2], 0, 0, 'WITHSCORES')[2]
  if not first or tonumber(first) >= 922337203685477 then
    return {0, -1}
  end
  return {0, math.max(first - now, 0)}
end
redis.call('decrby', KEYS[1], wanted)
-- A user who may not release must not take permits. These checks follow the first write: if they came before, a full
-- memory would not refuse the first write any more.
for _, gives_back in ipairs({redis.pcall('incrby', KEYS[1], 0), redis.pcall('zrem', KEYS[2], '')}) do
  if type(gives_back) == 'table' then
    redis.call('decrby', KEYS[1], -wanted)
    return gives_back
  end
end
for i = 4, #ARGV do
  local added = redis.pcall('zadd', KEYS[2], ends, ARGV[i])
  if type(added) == 'table' then
    redis.call('incrby', KEYS[1], wanted)
    return added
  end
end
local ttl_ms = redis.call('pttl', KEYS[1])
if ttl_ms > 0 then
  redis.pcall('pexpire', KEYS[2], ttl_ms)
elseif redis.call('pttl', KEYS[2]) > 0 then
  -- Redisson's addPermits took the expiry of the counter away, and taken permits must not end at the old one.
  redis.pcall('persist', KEYS[2])
end
return {1}
