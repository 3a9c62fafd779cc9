-- Takes the lock for one owner alone, or gives one that waits a place in the queue.
local owner, expires, due, meta = unpack(ARGV) -- see layout.lua

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
  -- uses: grant
  return grant(owner, clock, last, meta ~= '' and meta, nil, expires) or clock
end

-- includes: arrival
local place = tonumber(string.match(due, '^%d+', NUMBER))
-- includes: alone

if left > 0 then
  -- uses: holder_of
  local earlier, holder, about = 0, holder_of(current)
  -- includes: refusal
end

-- uses: next_token, grant, granted
local token, covered = next_token(last, now, due)
return not token and covered or grant(owner, token, last, meta, expired, expires) or granted(token, now, covered)
