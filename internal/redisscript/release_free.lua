-- release_free gives back a lock that nobody waits for, as most often it is. It returns what release.lua does; nil and what it
-- has read if the lock is not such a one.
local function release_free(key, owner)
  local lock = redis.call('HMGET', key, 'owner', 'queue')
  local holder = lock[1]
  if holder ~= owner and holder ~= '>' .. owner then
    return nil, lock
  elseif redis.call('PTTL', key) <= KEEP then
    return 0 -- left as it is: the next take sees that it lapsed
  elseif lock[2] then
    return nil, lock
  end
  redis.call('HDEL', key, 'owner', 'meta')
  return 1
end
