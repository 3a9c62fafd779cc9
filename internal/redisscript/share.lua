-- The end of acquire.lua for a share. As in grant.lua, what comes first may be refused: it harms nobody who has a share, and leaves nothing that does not expire.
local _, _, let_in, keep_readers, forget_readers, note_gone = queue_of(KEYS[1], QUEUE)
local readers, keeps = KEYS[1] .. ':readers', math.max(left + KEEP, expires)
if minted and not shared then
  forget_readers()
end
local done = redis.pcall('ZADD', readers, math.max(mine, math.floor(now / 1000) + expires - KEEP), owner)
if type(done) ~= 'table' then
  done = keep_readers(keeps - KEEP)
end
if type(done) == 'table' then -- an error
  if mine == 0 then
    redis.pcall('ZREM', readers, owner)
  end
  return done
end
if minted then
  redis.call('HSET', KEYS[1], 'owner', SHARES, 'meta', '', 'token', token, 'before', last or 0, 'shared', token, 'first', '')
end
redis.call('PEXPIRE', KEYS[1], keeps)
if waits then
  redis.call('ZREM', readers, '>' .. owner)
end

-- What has expired counts no more, and was not released, but for what was claimed and never taken.
local expired = redis.call('ZRANGE', readers, 0, 0, 'WITHSCORES')
while tonumber(expired[2]) * 1000 <= now do
  redis.call('ZREM', readers, expired[1])
  note_gone({ expired[1] })
  expired = redis.call('ZRANGE', readers, 0, 0, 'WITHSCORES')
end
if lapsed then
  redis.call('HSET', KEYS[1], 'lapsed', lapsed)
end
if queue and not shared then
  let_in(owner)
end
return {GRANTED, token, now, covered}
