-- Makes a hold a share under the same token. Returns 1, also if it is one already, or 0 if the hold
-- has ended.
local owner = unpack(ARGV) -- see layout.lua
-- uses: KEEP, READERS, SHARES, ELSEWHERE, forget_readers, keep_readers, admit
local lock, left = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue'), redis.call('PTTL', KEYS[1]) - KEEP
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if lock[1] == SHARES and left > 0 then
  local ends = tonumber(redis.call('ZSCORE', READERS, owner)) or 0
  if ends == 0 and redis.call('ZCARD', READERS) == 0 then
    return redis.error_reply(ELSEWHERE)
  end
  return ends > now and 1 or 0
elseif lock[1] ~= owner or left <= 0 then
  return 0
end
forget_readers()
redis.call('ZADD', READERS, now + left, owner) -- if it is refused, nothing has happened
-- Whether the hold before this one was a share is forgotten with its token.
redis.call('HSET', KEYS[1], 'owner', SHARES, 'writer', owner, 'shared', lock[2], 'before', 0, 'first', '')
keep_readers(left)
if lock[3] then
  admit()
end
return 1
