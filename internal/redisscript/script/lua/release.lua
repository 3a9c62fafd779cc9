-- Releases the hold of one owner alone, or declines what is claimed for it, or gives up its place
-- in the queue. Returns 1, or 0 if the hold had ended before.
local owner, token, sent = unpack(ARGV) -- see layout.lua

-- Most often the hold is there, and nobody waits for the lock. Then this is all.
-- uses: KEEP
local lock = redis.call('HMGET', KEYS[1], 'owner', 'queue')
local holds = lock[1] == owner or lock[1] == '>' .. owner
if holds and redis.call('PTTL', KEYS[1]) <= KEEP then
  return 0 -- left as it is: the next take sees that it expired
elseif holds and not lock[2] then
  redis.call('HDEL', KEYS[1], 'owner', 'meta')
  return 1
end

if holds then
  -- uses: pass_on
  pass_on(lock[2])
  return 1
end
local current = lock[1] or ''
if token == '0' then
  -- uses: is_shared, leave_queue
  return leave_queue(owner, is_shared(current))
end

-- Was it released the first time that this was sent, and the reply lost? Then the hold was granted
-- here, and did not expire; and it is not the one that is there now. What is sent for the first
-- time is not here because it expired, or because a failover forgot it. One that several holds have
-- followed may have been forgotten too: only the last two tokens are known.
if sent == '0' then
  return 0
end
local known = redis.call('HMGET', KEYS[1], 'token', 'before', 'lapsed')
local is_held = current ~= '' and string.sub(current, 1, 1) ~= '>'
local was_granted = token == known[2] or token == known[1] and not is_held
return was_granted and known[3] and tonumber(known[3]) < tonumber(token) and 1 or 0
