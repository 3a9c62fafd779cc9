-- What it takes if somebody waits for the lock, or the hold is not there: release_free.lua has run before. Returns what that does.
local QUEUE = KEYS[2] or KEYS[1] .. ':queue'
if ours then
  local waiter = lock[2] and next_waiter(KEYS[1], QUEUE)
  if waiter then
    claim_for(KEYS[1], waiter)
  else
    redis.call('HDEL', KEYS[1], 'owner', 'meta', 'queue')
  end
  return 1
end
token = tonumber(token)
if token == 0 then
  return redis.call('ZREM', QUEUE, owner) -- it waited
end
-- Was it released the first time that this was sent, and the reply lost? Then the hold was granted here, and did not expire; and
-- it is not the one that is there now. What is sent for the first time is not here because it expired, or because a failover
-- forgot it. One that several holds have followed may have been forgotten too: only the last two tokens are known.
local known = redis.call('HMGET', KEYS[1], 'token', 'before', 'lapsed')
local last, before, lapsed = tonumber(known[1]), tonumber(known[2]), tonumber(known[3])
local current = lock[1] or ''
local held = current ~= '' and string.sub(current, 1, 1) ~= '>'
local granted = token == before or token == last and not held
if tonumber(sent) > 0 and granted and lapsed and lapsed < token then
  return 1
end
return 0
