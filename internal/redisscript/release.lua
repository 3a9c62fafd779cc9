-- What it takes if somebody waits for the lock, or the hold is not there: release_free.lua has run before. Returns what that does.
local QUEUE = KEYS[2] or KEYS[1] .. ':queue'
if ours then
  local next_waiter, hand_over = queue_of(KEYS[1], QUEUE)
  local waiter = lock[2] and next_waiter()
  if waiter then
    hand_over(waiter)
  else
    redis.call('HDEL', KEYS[1], 'owner', 'meta', 'queue')
  end
  return 1
end
local current = lock[1] or ''
local shares = current == SHARES or current == CLAIMS
if shares then
  local ended, was_last = end_share(KEYS[1], QUEUE, owner)
  if was_last then
    redis.call('HSET', KEYS[1], 'reader', owner)
  end
  ended = ended or end_share(KEYS[1], QUEUE, '>' .. owner)
  if ended == 1 or ended and token ~= '0' then
    return ended
  elseif not ended and redis.call('ZCARD', KEYS[1] .. ':readers') == 0 and redis.call('PTTL', KEYS[1]) > KEEP then
    redis.pcall('ZREM', QUEUE, owner)
    return redis.error_reply(ELSEWHERE)
  end
end
token = tonumber(token)
if token == 0 then
  local waited = redis.call('ZREM', QUEUE, owner)
  if waited == 1 and shares and redis.pcall('ZCARD', KEYS[1] .. ':readers') ~= 0 and redis.call('PTTL', KEYS[1]) > KEEP then
    local _, _, let_in = queue_of(KEYS[1], QUEUE)
    let_in() -- it may have been before them
  end
  return waited
end
-- Was it released the first time that this was sent, and the reply lost? Then the hold was granted here, and did not expire; and
-- it is not the one that is there now. What is sent for the first time is not here because it expired, or because a failover
-- forgot it. One that several holds have followed may have been forgotten too: only the last two tokens are known.
local known = redis.call('HMGET', KEYS[1], 'token', 'before', 'lapsed', 'shared', 'reader', 'gone')
local last, before, lapsed = tonumber(known[1]), tonumber(known[2]), tonumber(known[3])
local held = current ~= '' and string.sub(current, 1, 1) ~= '>'
local granted = token == before or token == last and not held
local gone = known[6] or ''
if tonumber(string.match(gone, '^%d+')) == token and string.find(gone .. '\n', '\n' .. id_of(owner) .. '\n', 1, true) then
  return 0
elseif token == tonumber(known[4]) then
  -- Many have this token. The last of them is known, and of the others that nobody has had the lock alone since.
  if known[5] == owner then
    return tonumber(sent) > 0 and 1 or 0
  end
  granted = token == last and not (held and redis.call('PTTL', KEYS[1]) <= KEEP)
end
if tonumber(sent) > 0 and granted and lapsed and lapsed < token then
  return 1
end
return 0
