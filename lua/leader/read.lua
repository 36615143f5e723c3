-- leader/read.lua
-- Reads the leader: text and token count only while the owner beside them holds the lock.
--
-- KEYS[1] lock hash: owner id -> hold count
-- KEYS[2] leader hash: owner, token, since, candidate
--
-- reply: {ms} = no leader | {ms, token, since, candidate} = the leader, with the server time of the grant in ms;
--        ms is the time to live of the lock (-1 = no expiry, -2 = no lock)
local ttl_ms = redis.call('pttl', KEYS[1])
local leader = redis.call('hmget', KEYS[2], 'owner', 'token', 'since', 'candidate')
-- Asked also without a leader: a key that is no lock is refused.
if redis.call('hexists', KEYS[1], leader[1] or '') == 0 or not leader[1] then
  return {ttl_ms}
end
return {ttl_ms, leader[2], leader[3], leader[4]}
