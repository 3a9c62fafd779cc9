-- Raises the token of a hold, on a node of Redlock. Returns 1 if wanted is now the hold's token, 0
-- if the hold has ended or its token is larger, and -1 if wanted is too far ahead.
local owner, wanted, tag = unpack(ARGV) -- tag: of the mark
local MOST = 43200000000 -- µs that wanted may be ahead: a node whose clock is further off is left out
-- uses: KEEP, AHEAD, read_mark, write_mark
local time = redis.call('TIME')
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token')
local token, last, now = tonumber(wanted), tonumber(lock[2]), time[1] * 1000000 + time[2]
if lock[1] ~= owner or redis.call('PTTL', KEYS[1]) <= KEEP or token < last or token >= 2^53 then
  return 0
end
-- Without a mark one that is far ahead would be forgotten before the clock has passed it.
if token > math.max(last, now) + MOST or
    write_mark(tag, now, token, read_mark(tag, now)) == 0 and token > now + AHEAD then
  return -1
end
redis.call('HSET', KEYS[1], 'token', token) -- also if it is that already, for a WAIT behind it
return 1
