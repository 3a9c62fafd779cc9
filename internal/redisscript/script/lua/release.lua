-- Releases what one owner holds, alone or as a share, or declines what is claimed for it, or gives
-- up its place in the queue. Returns 1, or 0 if the hold had ended before.
local owner, token, sent = unpack(ARGV) -- see layout.lua

-- Most often the hold is there, and nobody waits for the lock. Then this is all.
-- uses: KEEP
local lock = redis.call('HMGET', KEYS[1], 'owner', 'queue')
local current = lock[1] or ''
if current == owner or current == '>' .. owner then
  if redis.call('PTTL', KEYS[1]) <= KEEP then
    return 0 -- left as it is: the next take sees that it expired
  elseif not lock[2] then
    redis.call('HDEL', KEYS[1], 'owner', 'meta')
    return 1
  end
  -- uses: pass_on
  pass_on(lock[2])
  return 1
end

-- uses: is_shared, wants_share
local shared = is_shared(current)
if shared and (wants_share(owner) or token ~= '0' and redis.call('HGET', KEYS[1], 'writer') == owner) then
  -- uses: QUEUE, READERS, ELSEWHERE, end_share
  local ended, was_last = end_share(owner)
  if was_last then
    redis.call('HSET', KEYS[1], 'reader', owner)
  end
  ended = ended or end_share('>' .. owner)
  if ended == 1 or ended and token ~= '0' then
    return ended
  elseif not ended and redis.call('ZCARD', READERS) == 0 and redis.call('PTTL', KEYS[1]) > KEEP then
    redis.pcall('ZREM', QUEUE, owner)
    return redis.error_reply(ELSEWHERE)
  end
end
if token == '0' then -- it waits no more
  -- uses: QUEUE, READERS, admit
  local waited = redis.call('ZREM', QUEUE, owner)
  if waited == 1 and shared and redis.pcall('ZCARD', READERS) ~= 0 and redis.call('PTTL', KEYS[1]) > KEEP then
    admit() -- it may have been before others that want a share
  end
  return waited
elseif sent == '0' then
  return 0 -- it expired, or a failover forgot it
end

-- Was it released the first time that this was sent, and the reply lost? Then it was granted here,
-- and did not expire; and it is not what is there now. A hold that several have followed may have
-- been forgotten by a failover: only the last two tokens are known. Many have the token of a share.
-- The last of them is known, and of the others that nobody has had the lock alone since.
-- uses: id_of
local known = redis.call('HMGET', KEYS[1], 'token', 'before', 'lapsed', 'shared', 'reader', 'gone')
local gone = known[6] or ''
local is_held = current ~= '' and string.sub(current, 1, 1) ~= '>'
local was_granted = token == known[2] or token == known[1] and not is_held
if string.match(gone, '^%d+') == token and string.find(gone .. '\n', '\n' .. id_of(owner) .. '\n', 1, true) then
  return 0
elseif token == known[4] then
  if known[5] == owner then
    return 1
  end
  was_granted = token == known[1] and not (is_held and redis.call('PTTL', KEYS[1]) <= KEEP)
end
return was_granted and tonumber(known[3]) < tonumber(token) and 1 or 0
