-- Extends a share, or a hold that may not have become one yet. Returns 1, or 0 if it has ended.
local owner, expires = unpack(ARGV) -- see layout.lua
-- uses: KEEP, SHARES, READERS, ELSEWHERE
local current = redis.call('HGET', KEYS[1], 'owner')
local left = (current == owner or current == SHARES) and redis.call('PTTL', KEYS[1]) - KEEP or 0
if left <= 0 then
  return 0
elseif current == owner then
  return redis.call('PEXPIRE', KEYS[1], expires)
end

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local ends = redis.call('ZSCORE', READERS, owner)
if not ends or tonumber(ends) <= now then
  if not ends and redis.call('ZCARD', READERS) == 0 then
    return redis.error_reply(ELSEWHERE)
  end
  return 0
end
-- First what Redis allows when it is out of memory: then it allows the rest.
local keeps = math.max(left + KEEP, expires)
redis.call('PEXPIRE', KEYS[1], keeps)
redis.call('PEXPIRE', READERS, keeps)
redis.call('ZADD', READERS, math.max(tonumber(ends), now + expires - KEEP), owner)
return 1
