-- once/close.lua
-- Closes a request that was given up: after this, a late copy of the request does nothing.
--
-- KEYS[1] idempotency key: the number of the last request with an effect, and its answer
-- ARGV[1] number of this request, greater than the number of the request that was given up
-- ARGV[2] time to live of the idempotency key, ms
--
-- reply: 1 = closed
local number = tonumber(string.match(redis.call('get', KEYS[1]) or '', '^%d+') or 0)
-- After this first write, a full memory does not refuse the rest.
redis.call('pexpire', KEYS[1], ARGV[2])
if number < tonumber(ARGV[1]) then
  redis.call('set', KEYS[1], string.format('%s 0', ARGV[1]), 'PX', ARGV[2])
end
return 1
