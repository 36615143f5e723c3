-- fair/acquire.lua
-- Takes the lock if it is free and nobody is in front of us; otherwise joins the queue or keeps our place in it.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] list of waiting owners, the next one first
-- KEYS[3] sorted set of waiting owners, by the server time in ms at which each counts as gone
-- ARGV[1] lease, ms
-- ARGV[2] owner id
-- ARGV[3] patience, ms: a waiter that is not heard of for so long loses its place; 0 = ask once, do not join
-- ARGV[4] ms since this owner asked before
-- ARGV[5] channel of the lock; each waiter has its own, with ':' and its owner id added
-- ARGV[6] message
-- ARGV[7] command that publishes
--
-- reply: {1} = granted | {0, ms} = busy, come back after this time | {2} = another kind of lock has this name
local lock, queue, deadlines, owner = KEYS[1], KEYS[2], KEYS[3], ARGV[2]
local patience_ms = tonumber(ARGV[3])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

if redis.call('hexists', lock, 'mode') == 1 then
  return {2}
end
-- The same request came before and its answer was lost: grant it again.
if redis.call('hexists', lock, owner) == 1 then
  redis.call('pexpire', lock, math.max(tonumber(ARGV[1]), redis.call('pttl', lock)))
  redis.call('hset', lock, owner, 1)
  return {1}
end

-- What those in front may still take from us, and our patience. Redisson's waiters have no hold number in their
-- names, and take 300 s from everybody behind them when they get in, whatever was between; ours take their patience.
local function least_ms(in_front)
  local ms = patience_ms
  for _, waiter in ipairs(in_front) do
    ms = ms + (string.find(waiter, '%.%d+$') and patience_ms or 300000)
  end
  return ms
end

-- We are alive: the time since we asked does not count against our place.
local mine = redis.call('zscore', deadlines, owner)
local place = mine and redis.call('lpos', queue, owner)
if mine and not place then
  redis.call('zrem', deadlines, owner)
  mine = false
end
if mine then
  local in_front = place > 0 and redis.call('lrange', queue, 0, place - 1) or {}
  local mine_ends = math.max(tonumber(mine) + tonumber(ARGV[4]), now + least_ms(in_front))
  redis.call('zadd', deadlines, string.format('%.0f', mine_ends), owner)
end

-- Whoever is first and counts as gone, or has no deadline at all, makes room.
local head = redis.call('lindex', queue, 0)
local head_ends
local purged = false
while head do
  head_ends = tonumber(redis.call('zscore', deadlines, head) or 0)
  if head_ends > now then
    break
  end
  redis.call('zrem', deadlines, head)
  redis.call('lpop', queue)
  purged = true
  mine = mine and head ~= owner
  head = redis.call('lindex', queue, 0)
end

local free = redis.call('exists', lock) == 0
if free and (not head or head == owner) then
  redis.call('hset', lock, owner, 1)
  local set = redis.pcall('pexpire', lock, ARGV[1])
  if type(set) == 'table' then
    -- Not allowed to end it, not allowed to begin it: a lock without end helps nobody.
    redis.call('hdel', lock, owner)
    return set
  end
  if head then
    redis.call('lpop', queue)
    redis.call('zrem', deadlines, owner)
    -- Those behind counted our patience in front of their own.
    local waiting = redis.call('zrange', deadlines, 0, -1, 'withscores')
    for i = 1, #waiting, 2 do
      local ends = math.max(tonumber(waiting[i + 1]) - patience_ms, now + patience_ms)
      redis.call('zadd', deadlines, string.format('%.0f', ends), waiting[i])
    end
  end
  return {1}
end
-- Whoever was told that it is free is gone: the next one's turn it is, and that one has to hear of it.
if free and purged then
  redis.pcall(ARGV[7], ARGV[5] .. ':' .. head, ARGV[6])
end
if patience_ms == 0 then
  return {0, math.max(redis.call('pttl', lock), 0)}
end

if not mine then
  local last = redis.call('lindex', queue, -1)
  local last_ends = last and redis.call('zscore', deadlines, last)
  local ahead_ms = last_ends and tonumber(last_ends) - now or math.max(redis.call('pttl', lock), 0)
  local mine_ends = now + math.max(ahead_ms + patience_ms, least_ms(redis.call('lrange', queue, 0, -1)))
  redis.call('zadd', deadlines, string.format('%.0f', mine_ends), owner)
  redis.call('rpush', queue, owner)
elseif head == owner then
  -- First in line and alive: should we die now, it costs the others our patience and no more.
  redis.call('zadd', deadlines, now + patience_ms, owner)
end
-- Whatever becomes of the waiters, their keys do not stay for ever.
local last_end = redis.call('zrevrange', deadlines, 0, 0, 'withscores')[2]
local keep_ms = math.max(tonumber(last_end) - now, 0) + 86400000
redis.call('pexpire', queue, keep_ms)
redis.call('pexpire', deadlines, keep_ms)

if not free then
  return {0, redis.call('pttl', lock)}
end
-- Free, and another one's turn: it has our patience to come. Whoever took the one before it out may have told
-- nobody, as Redisson does, so it is told once more when that time begins.
if head_ends > now + patience_ms then
  head_ends = now + patience_ms
  redis.call('zadd', deadlines, head_ends, head)
  if not purged then
    redis.pcall(ARGV[7], ARGV[5] .. ':' .. head, ARGV[6])
  end
end
return {0, math.max(head_ends - now, 10)}
