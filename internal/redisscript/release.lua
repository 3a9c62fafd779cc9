-- What it takes if somebody waits, or the hold is not there; see release_free.lua.
if owner == ARGV[1] or owner == '>' .. ARGV[1] then
  local waiter = lock[2] and next_waiter()
  if waiter then
    claim_for(waiter)
  else
    redis.call('HDEL', KEYS[1], 'owner', 'meta', 'queue')
  end
  return 1
end
local token = tonumber(ARGV[2])
if token == 0 then
  return redis.call('ZREM', QUEUE, ARGV[1]) -- it waited
end
local known = redis.call('HMGET', KEYS[1], 'token', 'lapsed')
local last, lapsed = tonumber(known[1]), tonumber(known[2])
-- Was it released the first time that this was sent, and the reply lost? Then the hold did not lapse, and
-- its token is not the one of the hold that is there now. What is sent for the first time is not here because
-- it lapsed, or because a failover forgot it.
local held = owner ~= '' and string.sub(owner, 1, 1) ~= '>'
if tonumber(ARGV[3]) > 0 and last and lapsed and lapsed < token and (token < last or token == last and not held) then
  return 1
end
return 0
