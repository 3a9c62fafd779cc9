local owner, token = unpack(ARGV) -- see script.go
-- Ends the hold of that owner under that token. Returns 1, 0 if nobody holds the lock, and -1 if another hold is there.
local QUEUE = KEYS[2] or KEYS[1] .. ':queue'
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue')
local current = lock[1] or ''
if current == '' or string.sub(current, 1, 1) == '>' or redis.call('PTTL', KEYS[1]) <= KEEP then
  return 0
end
if owner ~= '' and owner ~= current or token ~= '0' and token ~= lock[2] then
  return -1
end
redis.call('HSET', KEYS[1], 'lapsed', lock[2]) -- a release of this hold that is sent again returns 0
local waiter = lock[3] and next_waiter(KEYS[1], QUEUE)
if waiter then
  claim_for(KEYS[1], waiter)
else
  redis.call('HDEL', KEYS[1], 'owner', 'meta', 'queue')
end
return 1
