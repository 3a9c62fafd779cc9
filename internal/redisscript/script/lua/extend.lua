-- Extends the hold of one owner alone. Returns 1, or 0 if the hold has ended.
local owner, expires = unpack(ARGV) -- see layout.lua
-- uses: KEEP
if redis.call('HGET', KEYS[1], 'owner') == owner and redis.call('PTTL', KEYS[1]) > KEEP then
  return redis.call('PEXPIRE', KEYS[1], expires)
end
return 0
