-- ARGV: owner, token (0: not known). Returns 1, or 0 if the hold had ended before.
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'lapsed')
if lock[1] == ARGV[1] then
  if redis.call('PTTL', KEYS[1]) <= KEEP then
    return 0 -- left as it is: the next take sees that it lapsed
  end
  redis.call('HDEL', KEYS[1], 'owner', 'meta')
  return 1
end
-- Sent again, its first reply lost? Then the hold did not lapse, and its token is not the one of the
-- hold that is there now.
local token, last, lapsed = tonumber(ARGV[2]), tonumber(lock[2]), tonumber(lock[3])
if last and lapsed and lapsed < token and (token < last or (token == last and (lock[1] or '') == '')) then
  return 1
end
return 0
