local owner, wanted = unpack(ARGV) -- see script.go
-- Returns 1 if wanted is now the hold's token, 0 if the hold has ended or its token is larger, and -1 if wanted is too far ahead.
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token')
local token, last = tonumber(wanted), tonumber(lock[2])
if lock[1] ~= owner or redis.call('PTTL', KEYS[1]) <= KEEP or token < last or token >= 2^53 then
  return 0
end
if token > math.max(last, time[1] * 1000000 + time[2]) + AHEAD then
  return -1
end
redis.call('HSET', KEYS[1], 'token', token) -- also if it is that already, for a WAIT behind it
return 1
