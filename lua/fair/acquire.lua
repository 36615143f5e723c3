-- fair/acquire.lua
-- Takes the lock if it is free and nobody is in front of us; otherwise joins the queue or keeps our place in it.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] list of waiting owners, the next one first
-- KEYS[3] sorted set of waiting owners, by the server time in ms at which each counts as gone for Redisson
-- KEYS[4] sorted set of our waiters, by the server time in ms at which each will have been silent for its patience
-- ARGV[1] lease, ms
-- ARGV[2] owner id
-- ARGV[3] patience, ms: a waiter that is not heard of for so long loses its place; 0 = ask once, do not join
-- ARGV[4] channel of the lock; each waiter has its own, with ':' and its owner id added
-- ARGV[5] message
-- ARGV[6] command that publishes
--
-- reply: {1} = granted | {0, ms} = busy, come back after this time | {2} = another kind of lock has this name
local lock, queue, deadlines, alive, owner = KEYS[1], KEYS[2], KEYS[3], KEYS[4], ARGV[2]
local patience_ms = tonumber(ARGV[3])
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local silent_at = now + patience_ms
-- A waiter of Redisson takes its waiting time from everybody behind it when it gets in: 300 s by default.
local taken_by_java_ms = 300000
local day_ms = 86400000

local left_ms = redis.call('pttl', lock)
local free = left_ms == -2
if not free then
  if redis.call('hexists', lock, 'mode') == 1 then
    return {2}
  end
  -- The same request came before and its answer was lost: grant it again.
  if redis.call('hexists', lock, owner) == 1 then
    redis.call('pexpire', lock, math.max(tonumber(ARGV[1]), left_ms))
    redis.call('hset', lock, owner, 1)
    return {1}
  end
end

-- Redisson takes a waiter out of list and deadlines together. Where the two differ, the list decides.
local mine = redis.call('zscore', deadlines, owner)
if
  mine
  and redis.call('llen', queue) ~= redis.call('zcard', deadlines)
  and not redis.call('lpos', queue, owner)
then
  redis.call('zrem', deadlines, owner)
  mine = false
end

-- For how long this waiter was not heard of.
local unheard_ms = mine and silent_at - tonumber(redis.call('zscore', alive, owner) or silent_at) or 0
local outage_ms = math.max(patience_ms / 2, 2000)
if unheard_ms > outage_ms then
  -- If nobody was heard of, the server was out of reach: the time counts against nobody.
  local nobody_ms = silent_at - tonumber(redis.call('zrevrange', alive, 0, 0, 'withscores')[2])
  local ours = nobody_ms > outage_ms and redis.call('zrange', alive, 0, -1, 'withscores') or {}
  for i = 1, #ours, 2 do
    redis.call('zadd', alive, ours[i + 1] + nobody_ms, ours[i])
  end
end

-- A head that has been silent for its patience, that passed its deadline or has none makes room, once it is its turn.
local head, head_ends = redis.call('lindex', queue, 0), 0
local purged = false
while free and head do
  head_ends = mine and head == owner and silent_at
    or tonumber(redis.call('zscore', alive, head) or redis.call('zscore', deadlines, head) or 0)
  if head_ends > now then
    break
  end
  redis.call('zrem', deadlines, head)
  redis.call('zrem', alive, head)
  redis.call('lpop', queue)
  purged = true
  head = redis.call('lindex', queue, 0)
end

if free and (not head or head == owner) then
  redis.call('hset', lock, owner, 1)
  local set = redis.pcall('pexpire', lock, ARGV[1])
  if type(set) == 'table' then
    -- Not allowed to end it, not allowed to begin it: a lock without end helps nobody.
    redis.call('hdel', lock, owner)
    return set
  end
  -- Not allowed to give it back or to leave the queue, not allowed to take it. Asked for after the first write:
  -- before it, a full memory would not refuse that one any more.
  local done = redis.pcall('hdel', lock, '')
  if type(done) ~= 'table' then
    done = redis.pcall('zrem', alive, owner)
  end
  if type(done) ~= 'table' and head then
    done = redis.pcall('lpop', queue)
  end
  if type(done) == 'table' then
    redis.call('pexpire', lock, 0)
    return done
  end
  if head then
    redis.call('zrem', deadlines, owner)
    -- A waiter of Redisson that has become the head has our patience at least.
    local next_one = redis.call('lindex', queue, 0)
    local is_java = next_one and not redis.call('zscore', alive, next_one)
    if is_java and tonumber(redis.call('zscore', deadlines, next_one) or silent_at) < silent_at then
      redis.call('zadd', deadlines, silent_at, next_one)
    end
  end
  return {1}
end
-- The waiter that was told of the free lock is gone: the next one's turn it is, and that one has to hear of it.
if purged then
  redis.pcall(ARGV[6], ARGV[4] .. ':' .. head, ARGV[5])
end
if patience_ms == 0 then
  return {0, math.max(left_ms, 0)}
end

-- This waiter is alive, and Redisson has to see a deadline that lasts until its next question: with what the waiters
-- of Redisson in front may take. The queue has as many of those as it is longer than the set of ours.
redis.call('zadd', alive, silent_at, owner)
local length = redis.call('llen', queue) + (mine and 0 or 1)
local of_java = length - redis.call('zcard', alive)
local ends = silent_at
if of_java > 0 and head ~= owner then
  ends = mine and math.max(tonumber(mine) + unheard_ms, silent_at) or silent_at + taken_by_java_ms * of_java
end
redis.call('zadd', deadlines, string.format('%.0f', ends), owner)
if not mine then
  redis.call('rpush', queue, owner)
end

-- What costs a walk along the queue is done twice a second at most. The time to live tells when it was done.
local is_due = redis.call('pttl', alive) <= day_ms - 500
if is_due then
  redis.call('pexpire', alive, day_ms)
  for _, waiter in ipairs(redis.call('zrangebyscore', alive, '-inf', now)) do
    if not redis.call('zscore', deadlines, waiter) then
      redis.call('zrem', alive, waiter)
    end
  end
  local in_front = 0
  for _, waiter in ipairs(of_java > 0 and redis.call('lrange', queue, 0, -1) or {}) do
    local silent = redis.call('zscore', alive, waiter)
    if silent then
      redis.call('zadd', deadlines, string.format('%.0f', silent + taken_by_java_ms * in_front), waiter)
    else
      in_front = in_front + 1
    end
  end
end
-- Whatever becomes of the waiters, their keys do not stay for ever.
if is_due or not mine then
  local last_end = redis.call('zrevrange', deadlines, 0, 0, 'withscores')[2]
  local keep_ms = math.max(tonumber(last_end) - now, 0) + day_ms
  redis.call('pexpire', queue, keep_ms)
  redis.call('pexpire', deadlines, keep_ms)
end

-- A waiter is heard of four times in its patience, so a late question does not cost it its place; far back in a long
-- queue twice.
local sleep_ms = math.min(1000, patience_ms / 4)
if length > 100 and not redis.call('lpos', queue, owner, 'maxlen', 100) then
  sleep_ms = math.min(2000, patience_ms * 0.4)
end
if not free then
  return {0, math.floor(left_ms < 0 and sleep_ms or math.min(left_ms, sleep_ms))}
end
-- Free, and another one's turn: it has our patience to come. Whoever took the one before it out may have told
-- nobody, as Redisson does, so it is told once more when that time begins.
if head_ends > silent_at then
  head_ends = silent_at
  redis.call('zadd', deadlines, head_ends, head)
  redis.call('zadd', alive, 'xx', head_ends, head)
  if not purged then
    redis.pcall(ARGV[6], ARGV[4] .. ':' .. head, ARGV[5])
  end
end
return {0, math.floor(math.min(math.max(head_ends - now, 10), sleep_ms))}
