-- Takes a share of the lock, for an owner that has a ~ in it, or gives one that waits a place in
-- the queue.
local owner, expires, due, meta = unpack(ARGV) -- see layout.lua
local time = redis.call('TIME')
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue')
local last = lock[2]
-- includes: arrival
-- uses: READERS, SHARES, is_shared, waits
local shared, ends, admitted = left > 0 and is_shared(current), 0, false
if shared then
  -- uses: ELSEWHERE
  ends = tonumber(redis.call('ZSCORE', READERS, owner)) or 0 -- sent twice
  admitted = waits(owner) and (tonumber(redis.call('ZSCORE', READERS, '>' .. owner)) or 0) * 1000 > now
  if ends == 0 and not admitted and redis.call('ZCARD', READERS) == 0 then
    return redis.error_reply(ELSEWHERE)
  end
end
if too_late and ends * 1000 <= now then
  -- uses: LATE
  return {LATE, now}
end

-- Who waits first, and wants the lock alone, keeps out shares that come later.
-- uses: NUMBER
local place = tonumber(string.match(due, '^%d+', NUMBER))
local expired, claim, writer_at
if left <= 0 and not claimed then
  -- uses: CLAIMS, succeed
  expired, claim, writer_at, admitted = succeed(current, last, lock[3], place, owner)
  if claim then
    current, left, shared = claim, CLAIM, claim == CLAIMS
  end
elseif shared and lock[3] and not admitted then
  -- uses: admit
  writer_at, admitted = admit(owner)
end
local joins = shared and (ends * 1000 > now or admitted or not writer_at or place > 0 and place < writer_at)
if left > 0 and not joins then
  -- uses: holder_of
  local earlier, holder, about = 0, holder_of(current)
  -- includes: refusal
end

-- Shares that are held at the same time have the same token.
local others, token, covered = left > 0 and current == SHARES, last, 0
if not others then
  -- uses: next_token
  token, covered = next_token(last, now, due)
  if not token then
    return covered
  end
end

-- As in grant, what comes first may be refused: it harms nobody who has a share, and leaves nothing
-- that does not expire.
-- uses: keep_readers, granted
local keeps = math.max(left + KEEP, expires)
if not shared then
  -- uses: forget_readers
  forget_readers()
end
local done = redis.pcall('ZADD', READERS, math.max(ends, math.floor(now / 1000) + expires - KEEP), owner)
if type(done) ~= 'table' then
  done = keep_readers(keeps - KEEP)
end
if type(done) == 'table' then -- an error
  if ends == 0 then
    redis.pcall('ZREM', READERS, owner)
  end
  return done
end
if not others then
  redis.call('HSET', KEYS[1], 'owner', SHARES, 'meta', '', 'token', token, 'before', last or 0, 'shared', token, 'first', '')
end
redis.call('PEXPIRE', KEYS[1], keeps)
redis.call('ZREM', READERS, '>' .. owner)

-- What has expired counts no more, and was not released, but for what was claimed and never taken.
local first = redis.call('ZRANGE', READERS, 0, 0, 'WITHSCORES')
while tonumber(first[2]) * 1000 <= now do
  -- uses: note_gone
  redis.call('ZREM', READERS, first[1])
  note_gone({ first[1] })
  first = redis.call('ZRANGE', READERS, 0, 0, 'WITHSCORES')
end
if expired or not last then -- what was before this hash is not known
  redis.call('HSET', KEYS[1], 'lapsed', expired or token - 1)
end
if lock[3] and not shared then
  -- uses: admit
  admit(owner)
end
return granted(token, now, covered)
