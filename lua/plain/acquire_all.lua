-- plain/acquire_all.lua
-- Takes several locks for new holds if all of them are free; otherwise changes nothing.
--
-- KEYS[*] lock hashes, all different: owner id -> hold count
-- ARGV[*] for each key in order: owner id, used for this hold only, lease in ms
--
-- reply: {1} = granted | {0, state of each key in order} = nothing was changed; a state is
--        -2 = free | ms = busy, with the time to live of the lock (-1 = no expiry)
--        | -3 = the key is another kind of lock, or no lock | -4 = held by this owner | text of an error
local FREE, OTHER_KIND, OURS = -2, -3, -4

local function state_of(key, owner)
  if redis.call('exists', key) == 0 then
    return FREE
  end
  -- A key that is not a lock must be told apart from the other keys.
  local held = redis.pcall('hexists', key, owner)
  if type(held) == 'table' then
    return held.err
  end
  -- An earlier copy of this request was granted and its reply was lost: grant again. If another owner has one of the
  -- locks by now, the caller gives back the others.
  if held == 1 then
    return OURS
  end
  -- A lock is a hash of one field, its owner: an id, a colon, a number, perhaps the id of a transaction. A user who
  -- may not read fields is told of a lock with sides only.
  local fields = redis.pcall('hrandfield', key, 2)
  local is_other
  if fields.err then
    is_other = redis.call('hexists', key, 'mode') == 1
  else
    is_other = #fields ~= 1 or not string.find(fields[1], ':%-?%d[%d.]*%f[:%z]:?%x*$')
  end
  if is_other then
    return OTHER_KIND
  end
  return redis.call('pttl', key)
end

local answer, free, ours = {0}, {}, {}
for i, key in ipairs(KEYS) do
  local state = state_of(key, ARGV[2 * i - 1])
  if state == OURS then
    ours[#ours + 1] = i
  elseif state == FREE then
    free[#free + 1] = i
  end
  answer[i + 1] = state
end
if #free + #ours < #KEYS then
  return answer
end

local function refusal(reply)
  return type(reply) == 'table' and reply or nil
end

local function take(key, owner, lease_ms)
  return refusal(redis.pcall('hset', key, owner, 1))
    -- A user who may not set the expiry must not take the lock: a lock without expiry could block for ever.
    or refusal(redis.pcall('pexpire', key, lease_ms))
    -- A user who may not release must not take the lock. This check follows the first write: if it came before, a full
    -- memory would not refuse the first write any more.
    or refusal(redis.pcall('hdel', key, ''))
end

local function take_again(key, owner, lease_ms)
  local ttl = redis.pcall('pttl', key)
  if type(ttl) == 'table' then
    return ttl
  end
  -- The time to live is set first: after this first write, a full memory does not refuse the hold count.
  return refusal(redis.pcall('pexpire', key, math.max(tonumber(lease_ms), ttl)))
    or refusal(redis.pcall('hset', key, owner, 1))
end

-- The free locks come first: a full memory refuses the first write, and then nothing is changed.
local refused
for _, i in ipairs(free) do
  refused = refused or take(KEYS[i], ARGV[2 * i - 1], ARGV[2 * i])
end
for _, i in ipairs(ours) do
  refused = refused or take_again(KEYS[i], ARGV[2 * i - 1], ARGV[2 * i])
end
if refused then
  for _, i in ipairs(free) do
    if type(redis.pcall('hdel', KEYS[i], ARGV[2 * i - 1])) == 'table' then
      redis.pcall('pexpire', KEYS[i], 0)
    end
  end
  return refused
end
return {1}
