-- Of an owner that wants the lock alone, where it is not free.
if left > 0 and current == owner then
  -- The request was sent twice. The owner counts the TTL from this one, or has extended the hold since.
  -- This script writes, for a WAIT behind it waits for what this connection has written.
  -- uses: granted
  redis.call('PEXPIRE', KEYS[1], math.max(left + KEEP, expires))
  return granted(last, now, 0)
elseif too_late then
  -- uses: LATE
  return {LATE, now}
end
local expired, claim
if left <= 0 and not claimed then
  -- uses: succeed
  expired, claim = succeed(current, last, lock[3], place, owner)
  if claim then
    current, left = claim, CLAIM
  end
end
