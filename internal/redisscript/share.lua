-- The end of acquire.lua for a share. What is written first may be refused, as in grant.lua.
local _, _, let_in, keep_readers, forget_readers = queue_of(KEYS[1], QUEUE)
local readers, keeps, new = KEYS[1] .. ':readers', math.max(left + KEEP, expires), current ~= SHARES or left <= 0
if minted then
  redis.call('HSET', KEYS[1], 'owner', SHARES, 'meta', '', 'token', token, 'before', last or 0, 'shared', token)
elseif new then
  redis.call('HSET', KEYS[1], 'owner', SHARES, 'meta', '')
end
if new and not shared then
  forget_readers()
end
local failed = redis.pcall('ZADD', readers, math.max(mine, math.floor(now / 1000) + expires - KEEP), owner)
if type(failed) ~= 'table' then
  failed = expire(KEYS[1], keeps)
elseif new then
  redis.call('HSET', KEYS[1], 'owner', (claimed or shared) and current or '')
end
if failed then
  redis.pcall('ZREM', readers, owner)
  return failed
end
keep_readers(keeps - KEEP)
if waits then
  redis.call('ZREM', readers, '>' .. owner)
end

-- What has expired counts no more, and was not released, but for what was claimed and never taken.
local oldest = redis.call('ZRANGE', readers, 0, 0, 'WITHSCORES')
while tonumber(oldest[2]) * 1000 <= now do
  redis.call('ZREM', readers, oldest[1])
  if string.sub(oldest[1], 1, 1) ~= '>' then
    lapsed = last or token
  end
  oldest = redis.call('ZRANGE', readers, 0, 0, 'WITHSCORES')
end
if lapsed then
  redis.call('HSET', KEYS[1], 'lapsed', lapsed)
end
if queue and not shared then
  let_in(owner)
end
return {GRANTED, token, now, covered}
