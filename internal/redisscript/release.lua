-- ARGV: owner ('>' before it: its claim alone), token (0: not known), how often this release has been sent
-- before. Returns 1, or 0 if the hold had ended before.
-- Below is what it takes if release_free has found lock, and that somebody waits for it, or that the hold is not there.
local QUEUE = KEYS[2] or KEYS[1] .. ':queue'
local owner = lock[1] or ''
if owner == ARGV[1] or owner == '>' .. ARGV[1] then
  local waiter = lock[2] and next_waiter(KEYS[1], QUEUE)
  if waiter then
    claim_for(KEYS[1], waiter)
  else
    redis.call('HDEL', KEYS[1], 'owner', 'meta', 'queue')
  end
  return 1
end
local token = tonumber(ARGV[2])
if token == 0 then
  return redis.call('ZREM', QUEUE, ARGV[1]) -- it waited
end
-- Was it released the first time that this was sent, and the reply lost? Then the hold was granted here, and did not lapse; and
-- it is not the one that is there now. What is sent for the first time is not here because it lapsed, or because a failover
-- forgot it. One that several holds have followed may have been forgotten too: only the last two tokens are known.
local known = redis.call('HMGET', KEYS[1], 'token', 'before', 'lapsed')
local last, before, lapsed = tonumber(known[1]), tonumber(known[2]), tonumber(known[3])
local held = owner ~= '' and string.sub(owner, 1, 1) ~= '>'
local granted = token == before or token == last and not held
if tonumber(ARGV[3]) > 0 and granted and lapsed and lapsed < token then
  return 1
end
return 0
