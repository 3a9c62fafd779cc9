local owners, token = unpack(ARGV) -- see script.go
-- Ends the hold of that owner under that token, or those of several shares that are their owners', and all of them if no owner is given. Returns 1, 0 if
-- nobody holds the lock, and -1 if another hold is there.
local QUEUE = KEYS[2] or KEYS[1] .. ':queue'
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue')
local current = lock[1] or ''
if current == '' or string.sub(current, 1, 1) == '>' or redis.call('PTTL', KEYS[1]) <= KEEP then
  return 0
end
local some = current == SHARES and owners ~= ''
if owners ~= '' and owners ~= current and not some or token ~= '0' and token ~= lock[2] then
  return -1
end
local next_waiter, hand_over, _, _, forget_readers, note_gone = queue_of(KEYS[1], QUEUE)
-- A release of what ends here that is sent again returns 0.
if some then
  local shown, ended = {}, -1
  for id in string.gmatch(owners, '[^\n]+') do
    shown[id] = true
  end
  for _, reader in ipairs(redis.call('ZRANGE', KEYS[1] .. ':readers', 0, -1)) do
    if shown[id_of(reader)] then
      note_gone({ reader })
      ended = end_share(KEYS[1], QUEUE, reader) == 1 and 1 or ended
    end
  end
  return ended
end
redis.call('HSET', KEYS[1], 'lapsed', lock[2])
if current == SHARES then
  forget_readers()
end
local waiter = lock[3] and next_waiter()
if waiter then
  hand_over(waiter)
else
  redis.call('HDEL', KEYS[1], 'owner', 'meta', 'queue')
end
return 1
