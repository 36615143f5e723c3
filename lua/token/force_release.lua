-- token/force_release.lua
-- Opens the lock whoever holds it; nobody is told, since nobody listens.
--
-- KEYS[1] lock: the value of whoever holds
--
-- reply: 1 = it was held | 0 = it was not
if not redis.call('get', KEYS[1]) then
  return 0
end
return redis.call('del', KEYS[1])
