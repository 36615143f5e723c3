-- durability/touch.lua
-- Writes to the key without changing it, so that the next WAIT covers all writes before it, whatever this connection
-- wrote last.
--
-- KEYS[1] key of any type
--
-- reply: 1 = written | 0 = there is no such key
local ttl_ms = redis.call('pttl', KEYS[1])
if ttl_ms == -2 then
  return 0
end
if ttl_ms == -1 then
  -- Without the right to PERSIST the script ends here, and the key stays endless.
  redis.call('persist', KEYS[1])
  redis.call('pexpire', KEYS[1], 86400000)
  redis.call('persist', KEYS[1])
else
  redis.call('pexpire', KEYS[1], math.max(ttl_ms, 1))
end
-- The read follows the write, so that a connection with tracking is told of later changes to the key.
redis.call('pttl', KEYS[1])
return 1
