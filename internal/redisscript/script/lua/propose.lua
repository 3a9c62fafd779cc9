-- As take.lua, for a node of Redlock: the token is the one that is proposed, if this server may
-- accept that, and who waits has brought its place. A node is asked often, and nobody asks it who
-- holds the lock.
local owner, expires, due, meta = unpack(ARGV) -- see layout.lua

-- The path of a free lock, as in take.lua.
local time = redis.call('TIME')
local clock = time[1] .. string.sub('00000', #time[2]) .. time[2] -- µs
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue')
-- uses: AHEAD, NUMBER
local last, proposed = lock[2], string.match(due, '^%d+', NUMBER)
if not lock[1] and not lock[3] and last and #last == 16 and last < proposed and #proposed == 16 and #clock == 16 and
    clock <= due and proposed < '9007199254740992' and tonumber(proposed) <= clock + AHEAD then
  -- uses: grant
  return grant(owner, proposed, last, meta ~= '' and meta, nil, expires) or clock
end

-- includes: arrival
-- uses: own_place
local ordered = own_place(owner)
local place = tonumber(ordered) or 0
-- includes: alone

if left > 0 then
  local theirs, earlier, holder, about = ordered and own_place(current), 0, '', ''
  if theirs and (#theirs < #ordered or #theirs == #ordered and theirs < ordered) then
    earlier = 1
  end
  -- includes: refusal
end

-- uses: next_token, grant, granted
local proposal = tonumber(proposed)
local token, covered = next_token(last, now, due, proposal)
local text = token == proposal and proposed or token -- which Redis need not print
return not token and covered or grant(owner, text, last, meta, expired, expires) or granted(token, now, covered)
