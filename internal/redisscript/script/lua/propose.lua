-- As take.lua, for a node of Redlock: the token is the one that is proposed, if this server may
-- accept that, and who waits has brought its place. A node is asked often, and nobody asks it who
-- holds the lock.
local owner, expires, due, meta = unpack(ARGV) -- see script.go

-- The path of a free lock, as in take.lua.
local time = redis.call('TIME')
local clock = time[1] .. string.sub('00000', #time[2]) .. time[2] -- µs
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue')
-- uses: AHEAD, NUMBER
local last, proposed = lock[2], string.match(due, '^%d+', NUMBER)
if not lock[1] and not lock[3] and last and #last == 16 and last < proposed and #proposed == 16 and #clock == 16 and
    clock <= due and proposed < '9007199254740992' and tonumber(proposed) <= clock + AHEAD then
  if meta == '' then
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', proposed, 'before', last)
  else
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', proposed, 'before', last, 'meta', meta)
  end
  local failed = redis.pcall('PEXPIRE', KEYS[1], expires)
  if type(failed) ~= 'table' then
    return clock
  end
  redis.call('HSET', KEYS[1], 'owner', '', 'meta', '')
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

-- uses: own_place
local ordered, expired, claim = own_place(owner), nil, nil
local place = tonumber(ordered) or 0
if left <= 0 and not claimed then
  -- uses: succeed
  expired, claim = succeed(current, last, lock[3], place, owner)
  if claim then
    current, left = claim, CLAIM
  end
end

if left > 0 then
  -- uses: held
  if not ordered then
    return held(left, now, 0, 0, 0, '', '')
  end
  -- uses: is_shared, note_look, enqueue
  if is_shared(current) then
    note_look(owner, now)
  end
  local theirs, earlier = own_place(current), 0
  if theirs and (#theirs < #ordered or #theirs == #ordered and theirs < ordered) then
    earlier = 1
  end
  local stands, back, refused = enqueue(owner, place, now, lock[3])
  return refused or held(left, now, stands, back, earlier, '', '')
end

-- uses: next_token, grant, granted
local proposal = tonumber(proposed)
local token, covered = next_token(last, now, due, proposal)
local text = token == proposal and proposed or token -- which Redis need not print
return not token and covered or grant(owner, text, last, meta, expired, expires) or granted(token, now, covered)
