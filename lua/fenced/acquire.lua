-- fenced/acquire.lua
-- Takes the lock for a new hold if the lock is free, and draws the fencing token; in an election, tells who leads.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] the last token
-- KEYS[3] in an election: leader hash: owner, token, since (server time in ms), candidate
-- ARGV[1] lease, ms
-- ARGV[2] owner id, used for this hold only
-- ARGV[3] in an election: text of the candidate
-- ARGV[4] in an election: channel of the leader
-- ARGV[5] in an election: command that publishes
--
-- reply: {1, token} = granted | {0, ms} = busy, with the time to live of the lock (-1 = no expiry)
--        | {2} = the key is another kind of lock, or no lock
-- The clock of the server is a lower bound of the counter: tokens rise even after the counter was lost.
local function draw()
  local last = tonumber(redis.call('get', KEYS[2])) or 0
  if not (last < 9007199254740992) then
    -- From here on the numbers of Lua have gaps, and the next token could equal the last one.
    return redis.error_reply('OVERFLOW no token would be greater than the last one')
  end
  local time = redis.call('time')
  local token = math.max(last + 1, time[1] * 1000000 + time[2])
  redis.call('set', KEYS[2], string.format('%.0f', token))
  return token
end

local function granted(token, lease_ms)
  if KEYS[3] then
    local time, text = redis.call('time'), string.format('%.0f', token)
    local since = string.format('%.0f', time[1] * 1000 + math.floor(time[2] / 1000))
    -- Text and token are written together, so that they always belong to the same owner.
    redis.call('hset', KEYS[3], 'owner', ARGV[2], 'token', text, 'since', since, 'candidate', ARGV[3])
    redis.call('pexpire', KEYS[3], lease_ms)
    -- The lock is held even if the message is refused; observers also ask without a message.
    redis.pcall(ARGV[5], ARGV[4], text)
  end
  return {1, token}
end

if redis.call('exists', KEYS[1]) == 0 then
  local token = draw()
  if type(token) == 'table' then
    return token
  end
  redis.call('hset', KEYS[1], ARGV[2], 1)
  local set = redis.pcall('pexpire', KEYS[1], ARGV[1])
  if type(set) == 'table' then
    -- A user who may not set the expiry must not take the lock: a lock without expiry could block for ever.
    redis.call('hdel', KEYS[1], ARGV[2])
    return set
  end
  -- A user who may not release must not take the lock. This check follows the first write: if it came before, a full
  -- memory would not refuse the first write any more.
  local gives_back = redis.pcall('hdel', KEYS[1], '')
  if KEYS[3] and type(gives_back) ~= 'table' then
    gives_back = redis.pcall('del', KEYS[3])
  end
  if type(gives_back) == 'table' then
    redis.call('pexpire', KEYS[1], 0)
    return gives_back
  end
  return granted(token, ARGV[1])
end
-- An earlier copy of this request was granted and its reply was lost: grant again. No token was drawn since.
if redis.call('hexists', KEYS[1], ARGV[2]) == 1 then
  local lease_ms = math.max(tonumber(ARGV[1]), redis.call('pttl', KEYS[1]))
  redis.call('pexpire', KEYS[1], lease_ms)
  redis.call('hset', KEYS[1], ARGV[2], 1)
  if KEYS[3] and redis.call('hget', KEYS[3], 'owner') == ARGV[2] then
    redis.call('pexpire', KEYS[3], lease_ms)
    return {1, tonumber(redis.call('hget', KEYS[3], 'token'))}
  end
  return granted(tonumber(redis.call('get', KEYS[2])) or draw(), lease_ms)
end
-- A lock is a hash of one field, its owner: an id, a colon, a number, perhaps the id of a transaction. A user who may
-- not read fields is told of a lock with sides only.
local fields = redis.pcall('hrandfield', KEYS[1], 2)
local is_other
if fields.err then
  is_other = redis.call('hexists', KEYS[1], 'mode') == 1
else
  is_other = #fields ~= 1 or not string.find(fields[1], ':%-?%d[%d.]*%f[:%z]:?%x*$')
end
if is_other then
  return {2}
end
return {0, redis.call('pttl', KEYS[1])}
