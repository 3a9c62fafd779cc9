local owner, token, sent = unpack(ARGV) -- see script.go

-- Most often the hold is there and nobody waits for the lock. Then this is all. It comes before the functions of queue.lua, which take
-- their time to be made. Returns 1, or 0 if the hold had ended before.
local lock = redis.call('HMGET', KEYS[1], 'owner', 'queue')
local ours = lock[1] == owner or lock[1] == '>' .. owner
if ours and redis.call('PTTL', KEYS[1]) <= KEEP then
  return 0 -- left as it is: the next take sees that it expired
elseif ours and not lock[2] then
  redis.call('HDEL', KEYS[1], 'owner', 'meta')
  return 1
end
