-- token/force_release.lua
-- Releases the lock of whatever owner; publishes no message, because token locks have no channel.
--
-- KEYS[1] lock: the value of the holder
--
-- reply: 1 = the lock was held | 0 = the lock was free
if not redis.call('get', KEYS[1]) then
  return 0
end
return redis.call('del', KEYS[1])
