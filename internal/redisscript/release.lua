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
