local owner, token = unpack(ARGV) -- see script.go
-- Ends the hold of that owner under that token. If it is one of several shares it ends that alone, and all of them if no owner is given. Returns 1, 0 if nobody
-- holds the lock, and -1 if another hold is there.
local QUEUE = KEYS[2] or KEYS[1] .. ':queue'
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue')
local current = lock[1] or ''
if current == '' or string.sub(current, 1, 1) == '>' or redis.call('PTTL', KEYS[1]) <= KEEP then
  return 0
end
local one = current == SHARES and owner ~= ''
if owner ~= '' and owner ~= current and not one or token ~= '0' and token ~= lock[2] then
  return -1
end
if one and not redis.call('ZSCORE', KEYS[1] .. ':readers', owner) then
  return -1
end
redis.call('HSET', KEYS[1], 'lapsed', lock[2]) -- a release of this hold that is sent again returns 0
if one then
  return end_share(KEYS[1], QUEUE, owner)
end
local next_waiter, hand_over, _, _, forget_readers = queue_of(KEYS[1], QUEUE)
if current == SHARES then
  forget_readers()
end
local waiter = lock[3] and next_waiter()
if waiter then
  hand_over(waiter)
else
  redis.call('HDEL', KEYS[1], 'owner', 'meta', 'queue')
end
return 1
