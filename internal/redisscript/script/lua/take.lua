-- Takes the lock for one owner alone, or gives one that waits a place in the queue.
local owner, expires, due, meta = unpack(ARGV) -- see script.go

-- Most often nobody holds the lock, nobody waits for it, its last hold was released, and the mark
-- covers the grant. Then this is all. Times are texts: those take Redis half as long as numbers,
-- which it has to read and print. All of 16 digits, they compare as numbers do.
local time = redis.call('TIME')
local clock = time[1] .. string.sub('00000', #time[2]) .. time[2] -- µs
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue')
local last = lock[2]
-- uses: NUMBER
if not lock[1] and not lock[3] and last and #last == 16 and last < clock and #clock == 16 and clock <= due and
    clock < '9007199254740992' and string.byte(due, NUMBER) == 48 then -- and no place is known
  if meta == '' then -- where there is no owner, there is no metadata of one
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', clock, 'before', last)
  else
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', clock, 'before', last, 'meta', meta)
  end
  local failed = redis.pcall('PEXPIRE', KEYS[1], expires)
  if type(failed) ~= 'table' then
    return clock
  end
  redis.call('HSET', KEYS[1], 'owner', '', 'meta', '') -- for want of a right
  return failed
end

-- includes: arrival
if left > 0 and current == owner then
  -- uses: sent_twice
  return sent_twice(left, expires, last, now)
elseif too_late then
  -- uses: LATE
  return {LATE, now}
end

local place = tonumber(string.match(due, '^%d+', NUMBER))
local expired, claim
if left <= 0 and not claimed then
  -- uses: succeed
  expired, claim = succeed(current, last, lock[3], place, owner)
  if claim then
    current, left = claim, CLAIM
  end
end

if left > 0 then
  -- uses: waits, holder_of, held
  local holder, about = holder_of(current)
  if not waits(owner) then
    return held(left, now, 0, 0, 0, holder, about)
  end
  -- uses: is_shared, note_look, enqueue
  if is_shared(current) then
    note_look(owner, now)
  end
  local stands, back, refused = enqueue(owner, place, now, lock[3])
  return refused or held(left, now, stands, back, 0, holder, about)
end

-- uses: next_token, grant, granted
local token, covered = next_token(last, now, due)
return not token and covered or grant(owner, token, last, meta, expired, expires) or granted(token, now, covered)
