local last = unpack(ARGV) -- see script.go
-- Reads, and writes nothing. Returns what inspectReply says: texts that are empty, and a time that is not above 0, where there is
-- nothing. A user who may hold locks and not wait for them has no right to see the queue, and sees the rest.
local lock = redis.call('HMGET', KEYS[1], 'owner', 'meta', 'token')
local owner, meta, token = lock[1] or '', lock[2] or '', lock[3] or ''
local left = redis.call('PTTL', KEYS[1]) - KEEP
local waiters = redis.pcall('ZRANGE', KEYS[2] or KEYS[1] .. ':queue', 0, last)
if waiters.err then
  waiters = {}
end
return {owner, meta, left, token, waiters}
