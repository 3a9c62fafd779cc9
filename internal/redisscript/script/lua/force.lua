-- Ends the hold of that owner under that token, or the shares of those owners, or all of them if no
-- owner is given. Returns 1, 0 if nobody holds the lock, and -1 if another hold is there. A release
-- of what ends here that is sent again returns 0.
local owners, token = unpack(ARGV) -- owners: IDs, a line feed between two; '': any
-- uses: KEEP, READERS, SHARES, id_of, note_gone, end_share, forget_readers, pass_on
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue')
local current = lock[1] or ''
if current == '' or string.sub(current, 1, 1) == '>' or redis.call('PTTL', KEYS[1]) <= KEEP then
  return 0
end
local some_shares = current == SHARES and owners ~= ''
if owners ~= '' and owners ~= id_of(current) and not some_shares or token ~= '0' and token ~= lock[2] then
  return -1
end
if some_shares then
  local shown, ended = {}, -1
  for id in string.gmatch(owners, '[^\n]+') do
    shown[id] = true
  end
  for _, share in ipairs(redis.call('ZRANGE', READERS, 0, -1)) do
    if shown[id_of(share)] then
      note_gone({ share })
      ended = end_share(share) == 1 and 1 or ended
    end
  end
  return ended
end
redis.call('HSET', KEYS[1], 'lapsed', lock[2])
forget_readers()
pass_on(lock[3])
return 1
