-- Reads, and writes nothing. ARGV: how far into the queue to look, as ZRANGE counts. Returns {owner, metadata, ms left, the
-- last token, waiters}: texts that are empty, and a time that is not above 0, where there is nothing. A user who may hold
-- locks and not wait for them has no right to see the queue, and sees the rest.
local lock = redis.call('HMGET', KEYS[1], 'owner', 'meta', 'token')
local left = redis.call('PTTL', KEYS[1]) - KEEP
local waiters = redis.pcall('ZRANGE', KEYS[2] or KEYS[1] .. ':queue', 0, ARGV[1])
return {lock[1] or '', lock[2] or '', left, lock[3] or '', waiters.err and {} or waiters}
