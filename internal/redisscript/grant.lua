-- The reads are done. If the first write is refused (out of memory, a replica) nothing has happened; after
-- a write Redis would no longer refuse one for want of memory, so that it has to be this one.
if lapsed then
  redis.call('HSET', KEYS[1], 'owner', owner, 'token', text or token, 'before', last or 0, 'meta', meta, 'lapsed', lapsed)
else
  redis.call('HSET', KEYS[1], 'owner', owner, 'token', text or token, 'before', last or 0, 'meta', meta)
end
return expire(KEYS[1], expires) or {GRANTED, token, now, covered}
