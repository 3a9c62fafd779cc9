local owner, expires = unpack(ARGV) -- see script.go
-- Returns 1, or 0 if the hold has ended.
if redis.call('HGET', KEYS[1], 'owner') ~= owner or redis.call('PTTL', KEYS[1]) <= KEEP then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], expires)
