-- As release.lua, of a share, or of a hold that may not have become one yet.
local owner, token, sent = unpack(ARGV) -- see layout.lua
-- uses: KEEP, READERS, is_shared
local lock = redis.call('HMGET', KEYS[1], 'owner', 'queue')
local current = lock[1] or ''
if current == owner or current == '>' .. owner then
  if redis.call('PTTL', KEYS[1]) <= KEEP then
    return 0
  end
  -- uses: pass_on
  pass_on(lock[2])
  return 1
end
local shared = is_shared(current)
if shared then
  -- uses: QUEUE, ELSEWHERE, end_share
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
if token == '0' then
  -- uses: leave_queue
  return leave_queue(owner, shared)
end

-- As in release.lua: was it released the first time that this was sent? Many have the token of a
-- share. The last of them is known, and of the others that nobody has had the lock alone since.
-- uses: id_of
local known = redis.call('HMGET', KEYS[1], 'token', 'before', 'lapsed', 'shared', 'reader', 'gone')
local gone = known[6] or ''
local is_held = current ~= '' and string.sub(current, 1, 1) ~= '>'
local was_granted = token == known[2] or token == known[1] and not is_held
if string.match(gone, '^%d+') == token and string.find(gone .. '\n', '\n' .. id_of(owner) .. '\n', 1, true) then
  return 0
elseif token == known[4] then
  if known[5] == owner then
    return tonumber(sent) > 0 and 1 or 0
  end
  was_granted = token == known[1] and not (is_held and redis.call('PTTL', KEYS[1]) <= KEEP)
end
return tonumber(sent) > 0 and was_granted and known[3] and tonumber(known[3]) < tonumber(token) and 1 or 0
