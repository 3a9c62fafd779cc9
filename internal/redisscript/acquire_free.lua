-- ARGV: owner, TTL + KEEP in ms, a number, not-after by the server's clock in µs (0: none), metadata. The number
-- is the place in the queue of an owner that waits (0: the last), else a proposed token (0: the server's
-- clock in µs). It is one, for Redis takes no more than ten arguments of those who have yet to give a password.
-- Returns {1, token, now} if granted, or the token alone if that is now; {0, ms left, now, place, back} if held;
-- {-1, 0, now} if it arrived late. back is 1 if the owner had lost its place and has it again.
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue')

-- expire is what comes behind the write of a grant, and takes that back if it fails.
local function expire()
  local expires = redis.pcall('PEXPIRE', KEYS[1], ARGV[2])
  if type(expires) == 'table' then -- an error, for want of a right; that to HSET is there
    redis.call('HSET', KEYS[1], 'owner', '', 'meta', '')
    return expires
  end
end

-- Most often nobody holds it and nobody waits, and the last hold was released.
if not lock[1] and not lock[3] and ARGV[3] == '0' and #clock == 16 and lock[2] and #lock[2] == 16 and
    lock[2] < clock and #ARGV[4] == 16 and clock <= ARGV[4] and clock < '9007199254740992' then
  if ARGV[5] == '' then -- where there is no owner, there is no metadata of one
    redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', clock)
  else
    redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', clock, 'meta', ARGV[5])
  end
  return expire() or clock
end
