-- ARGV: owner ('>' before it: its claim alone), token (0: not known), how often this release has been sent
-- before. Returns 1, or 0 if the hold had ended before.
local lock = redis.call('HMGET', KEYS[1], 'owner', 'queue')
local owner = lock[1] or ''
if (owner == ARGV[1] or owner == '>' .. ARGV[1]) and redis.call('PTTL', KEYS[1]) <= KEEP then
  return 0 -- left as it is: the next take sees that it lapsed
end
if owner == ARGV[1] and not lock[2] then -- nobody waits
  redis.call('HDEL', KEYS[1], 'owner', 'meta')
  return 1
end
