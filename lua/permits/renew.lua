-- permits/renew.lua
-- Moves the end of the permits of each hold whose permits are all still taken; never takes a permit.
--
-- KEYS[*] for each hold: sorted set: permit id -> server time in ms at which the permit expires
-- ARGV[*] for each hold in order: time for which the permits stay taken, in ms; number of permits; permit ids
--
-- reply: an answer for each hold in order:
--        1 = renewed | 0 = lost, a permit is not taken any more | text of an error
local time = redis.call('time')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local answers = {}

local function renew(key, ends, first, last)
  for i = first, last do
    -- A key that is not a set must not stop the renewal of the other keys.
    local score = redis.pcall('zscore', key, ARGV[i])
    if type(score) == 'table' then
      return score.err
    end
    if not score then
      return 0
    end
  end
  for i = first, last do
    -- A time is only raised: a permit whose lease was taken away never expires.
    if tonumber(redis.call('zscore', key, ARGV[i])) < ends then
      local moved = redis.pcall('zadd', key, 'XX', string.format('%.0f', ends), ARGV[i])
      if type(moved) == 'table' then
        return moved.err
      end
    end
  end
  -- The read follows the write, so that a connection with tracking is told of later changes to the key.
  redis.call('zscore', key, ARGV[first])
  return 1
end

local at = 1
for i, key in ipairs(KEYS) do
  local count = tonumber(ARGV[at + 1])
  answers[i] = renew(key, now + ARGV[at], at + 2, at + 1 + count)
  at = at + 2 + count
end
return answers
