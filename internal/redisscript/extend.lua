-- ARGV: TTL + KEEP in ms, owner. Returns 1, or 0 if the hold has ended.
if redis.call('HGET', KEYS[1], 'owner') ~= ARGV[2] or redis.call('PTTL', KEYS[1]) <= KEEP then
  return 0
end
return redis.call('PEXPIRE', KEYS[1], ARGV[1])
