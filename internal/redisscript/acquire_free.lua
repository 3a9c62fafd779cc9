local owner, expires, number, due, meta = unpack(ARGV) -- see script.go

-- expire comes after the write of a grant, and takes that back if it fails.
local function expire(key, ms)
  local failed = redis.pcall('PEXPIRE', key, ms)
  if type(failed) == 'table' then -- an error, for want of a right; that to HSET is there
    redis.call('HSET', key, 'owner', '', 'meta', '')
    return failed
  end
end

-- Most often nobody holds the lock, nobody waits for it, and its last hold was released. Then this is all. It comes before the functions
-- of queue.lua, which take their time to be made.
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue')
local previous = lock[2]
if not lock[1] and not lock[3] and number == '0' and #clock == 16 and previous and #previous == 16 and previous < clock and
    clock <= due and clock < '9007199254740992' then
  if meta == '' then -- where there is no owner, there is no metadata of one
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', clock, 'before', previous)
  else
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', clock, 'before', previous, 'meta', meta)
  end
  return expire(KEYS[1], expires) or clock
end
