-- group/acquire.lua
-- Takes values of groups for new holds if all of them are free; otherwise changes nothing.
--
-- KEYS[*] for each value the hash of its group: field -> owner, field:owner:expire_time -> deadline in ms since 1970,
--         field:owner:lock_count -> hold count
-- ARGV[*] for each value in order: field, owner id, used for this hold only, lease in ms; at the end the difference
--         of clocks, ms
--
-- reply: {1} = granted | {0, state of each value in order} = nothing was changed; a state is
--        -2 = free | ms = busy, with the time until the hold expires | -3 = the key is another kind of lock, or no lock
--        | -4 = held by this owner
local FREE, OTHER_KIND, OURS = -2, -3, -4
local skew_ms = tonumber(ARGV[#ARGV])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
-- The number of fields of each key before the first write.
local length = {}

local function expiry_of(field, owner)
  return field .. ':' .. owner .. ':expire_time'
end

local function count_of(field, owner)
  return field .. ':' .. owner .. ':lock_count'
end

-- Holds that expired a minute ago, as value and owner: nobody may ever take their values again. A few are found at each
-- take. The minute spares holds of Redisson, whose deadlines are by another clock.
local GRACE_MS = 60000
local dead = {}
local function find_dead(key, fields)
  for _, field in ipairs(fields) do
    local value, owner = string.match(field, '^([^:]+):(.*):expire_time$')
    local deadline = value and tonumber(redis.call('hget', key, field))
    if deadline and deadline + skew_ms + GRACE_MS < now then
      dead[#dead + 1] = {key, value, owner}
    end
  end
end

-- Every field of a group is a hash in Base64, of 22 letters, alone or with the end of one of the two fields beside it. A
-- user who may not read fields is told of a lock of one name only: one field, or a mode.
local known = {}
local function is_of_group(field)
  local hash, rest = string.sub(field, 1, 22), string.sub(field, 23)
  return #hash == 22 and not string.find(hash, '[^%w+/]')
    and (rest == '' or string.find(rest, '^:.+:expire_time$') or string.find(rest, '^:.+:lock_count$'))
end

local function is_group(key)
  if length[key] == 0 then
    return true
  end
  if known[key] == nil then
    local fields = redis.pcall('hrandfield', key, math.min(4 * #KEYS, 400))
    if fields.err then
      known[key] = length[key] > 1 and redis.call('hexists', key, 'mode') == 0
    else
      known[key] = true
      for _, field in ipairs(fields) do
        known[key] = known[key] and is_of_group(field)
      end
      find_dead(key, known[key] and fields or {})
    end
  end
  return known[key]
end

-- Returns the state of a value, and the owner whose hold has expired.
local function state_of(key, field, owner)
  length[key] = length[key] or redis.call('hlen', key)
  local holder = redis.call('hget', key, field)
  if not holder then
    return is_group(key) and FREE or OTHER_KIND
  end
  -- An earlier copy of this request was granted and its reply was lost: grant again. If another owner has one of the
  -- values by now, the caller gives back the others.
  if holder == owner then
    return OURS
  end
  local deadline = tonumber(redis.call('hget', key, expiry_of(field, holder)) or 0) or 0
  local left = deadline + skew_ms - now
  if left <= 0 then
    return FREE, holder
  end
  local ttl = redis.call('pttl', key)
  return ttl < 0 and left or math.min(left, ttl)
end

local answer, values = {0}, {}
for i, key in ipairs(KEYS) do
  local value = {key = key, field = ARGV[3 * i - 2], owner = ARGV[3 * i - 1], lease_ms = ARGV[3 * i] + skew_ms}
  local state
  state, value.expired = state_of(key, value.field, value.owner)
  if state == FREE or state == OURS then
    value.is_ours = state == OURS
    values[#values + 1] = value
  end
  answer[i + 1] = state
end
if #values < #KEYS then
  return answer
end

local function refusal(reply)
  return type(reply) == 'table' and reply or nil
end

-- Raises the time to live of the key, which other values may need for longer. A key that another client keeps without
-- expiry stays so.
local raised = {}
local function raise(value)
  if (raised[value.key] or 0) >= value.lease_ms then
    return
  end
  raised[value.key] = value.lease_ms
  local ttl = redis.pcall('pttl', value.key)
  if type(ttl) == 'table' then
    return ttl
  end
  if length[value.key] == 0 or ttl >= 0 then
    return refusal(redis.pcall('pexpire', value.key, math.max(ttl, value.lease_ms)))
  end
end

-- Removes the fields of a hold that has expired, so that its owner does not find its old hold count. A user who may not
-- remove fields must not take the lock; without such a hold, this is tried once for each key.
local may_remove = {}
local function remove_expired(value)
  local key, field, expired = value.key, value.field, value.expired
  if expired then
    return refusal(redis.pcall('hdel', key, expiry_of(field, expired), count_of(field, expired)))
  elseif not may_remove[key] then
    may_remove[key] = true
    return refusal(redis.pcall('hdel', key, ''))
  end
end

local function take(value)
  local key, field, owner = value.key, value.field, value.owner
  local expiry, count = expiry_of(field, owner), count_of(field, owner)
  -- The removal follows the first write: if it came before, a full memory would not refuse the first write any more.
  return refusal(redis.pcall('hset', key, field, owner, expiry, now + value.lease_ms, count, 1))
    or raise(value)
    or remove_expired(value)
end

local function take_again(value)
  local key, field, owner = value.key, value.field, value.owner
  local deadline = tonumber(redis.call('hget', key, expiry_of(field, owner)) or 0) or 0
  deadline = math.max(deadline, now + value.lease_ms)
  -- After this first write, which writes nothing, a full memory does not refuse the next one.
  return refusal(redis.pcall('hdel', key, ''))
    or refusal(redis.pcall('hset', key, expiry_of(field, owner), deadline, count_of(field, owner), 1))
    or raise(value)
end

local function undo(value)
  local key, field, owner = value.key, value.field, value.owner
  local removed = redis.pcall('hdel', key, field, expiry_of(field, owner), count_of(field, owner))
  if type(removed) ~= 'table' then
    return
  end
  if length[key] == 0 then
    redis.pcall('pexpire', key, 0)
  elseif redis.pcall('hget', key, field) == owner then
    redis.pcall('hset', key, expiry_of(field, owner), 0)
  end
end

-- The free values come first: a full memory refuses the first write, and then nothing is changed.
table.sort(values, function(one, other)
  return not one.is_ours and other.is_ours
end)
for i, value in ipairs(values) do
  local refused = (value.is_ours and take_again or take)(value)
  if refused then
    for j = 1, i do
      if not values[j].is_ours then
        undo(values[j])
      end
    end
    return refused
  end
end
-- A repetition may have taken one of them again, under its own owner.
for _, hold in ipairs(values[#values].is_ours and {} or dead) do
  local key, field, owner = unpack(hold)
  redis.pcall('hdel', key, expiry_of(field, owner), count_of(field, owner))
  if redis.call('hget', key, field) == owner then
    redis.pcall('hdel', key, field)
  end
end
return {1}
