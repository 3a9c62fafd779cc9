-- What the takes have in common: take.lua, take_shared.lua and propose.lua.

local GRANTED = 1
local HELD = 0
local LATE = -1

-- A reply, as that in refusal.lua; reply.go reads them.
local function granted(token, now, covered) return {GRANTED, token, now, covered} end

-- An argument is due: five values in one text, which Due.Arg of due.go writes. Each by itself
-- would cost as much, within 1 % of a pair; but of a user who has yet to give a password Redis takes
-- ten arguments, keys included, and closes the connection of one with more instead of saying NOAUTH.
--   1       until when the mark covers a grant, in 16 digits, so that texts compare as numbers do
--   WHOLE   until when the request gets its whole TTL, in 16 digits
--   NUMBER  the token that is proposed; or the place of an owner that waits, 0 if it has none
--   /       in µs, for how long after that it gets what is left of the TTL
--   :       the tag of the mark
local WHOLE = 17
local NUMBER = 33

-- holder_of returns who holds a lock, and its metadata; not of a lock that is shared or claimed.
local function holder_of(owner)
  if string.find(owner, '^[>+]') then
    return '', ''
  end
  return owner, redis.call('HGET', KEYS[1], 'meta') or ''
end

-- remove_hung takes the waiters of processes off the queue that have not come for what is claimed
-- for them: such a process is dead, or hangs, or was not told. All of it makes room.
local function remove_hung(claims)
  local hung = {}
  for _, claim in ipairs(claims) do
    hung[string.match(claim, '^>(.-/)') or ''] = true
  end
  for _, waiter in ipairs(redis.pcall('ZRANGE', QUEUE, 0, -1)) do
    if hung[string.match(waiter, '^.-/')] then
      redis.pcall('ZREM', QUEUE, waiter)
    end
  end
end

-- succeed follows what has expired, or was released when nobody waited, and hands over to who waits
-- first, unless that is asks. It returns the token of a hold that has ended without a release, if
-- the next grant is to note it; and then what hand_over does, if it has.
local function succeed(owner, last, flagged, place, asks)
  local expired
  if is_shared(owner) then
    local members = redis.pcall('ZRANGE', READERS, 0, -1)
    remove_hung(members)
    if owner == SHARES and #members > 0 then
      note_gone(members)
    elseif owner == SHARES then
      expired = last -- nobody knows which of them
    end
  elseif string.sub(owner, 1, 1) == '>' then
    remove_hung({ owner })
  elseif owner ~= '' then
    expired = last
  end
  if not flagged and place == 0 and (last or redis.pcall('ZCARD', QUEUE) == 0) then
    return expired
  end
  local first = next_waiter(asks)
  if first == asks then
    redis.call('HSET', KEYS[1], 'queue', 1) -- others may stand behind it
  elseif first then
    local claim, writer_at, admitted = hand_over(first, asks)
    if expired then
      redis.call('HSET', KEYS[1], 'lapsed', expired)
    end
    return expired, claim, writer_at, admitted
  end
  return expired
end

-- next_token returns the token of a grant, and until when the mark covers others, or 0 if that is
-- not said; or nil and why there is none. It is the proposal, if there is one that may be accepted,
-- or the clock, or one more than the last.
local function next_token(last, now, due, proposal)
  -- The grant of a name that is known needs no mark until the mark's cover ends.
  local unmarked = last and last < now + AHEAD and now <= tonumber(string.sub(due, 1, WHOLE - 1))
  local tag = string.match(due, ':(.*)', NUMBER)
  local written, floor, token = 0, 0, now
  if not unmarked then
    written, floor = read_mark(tag, now)
  end
  -- Else the proposer's clock is wrong, or what this server has forgotten may be larger. (A request
  -- takes its time: a second.)
  if proposal and proposal <= now + AHEAD and (last or proposal >= now - 1000000 and proposal > floor) then
    token = proposal
  elseif not last and token <= floor then
    token = floor + 1
  end
  if last and token <= last then
    token = last + 1
  end
  if token >= 2^53 then
    return nil, redis.error_reply('ERR locker: the fencing token would reach 2^53, beyond which numbers are not exact')
  end
  -- A hash that cannot be given an expiry must not come to be. From Redis 7 on a script can ask.
  if not last and redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIRE', KEYS[1], 1) then
    return nil, redis.error_reply("NOPERM locker: the user has no permission to run the 'pexpire' command")
  end
  -- In a Cluster there is no second key where a slot moves: the mark may be elsewhere, and must not
  -- come to be in two places.
  return token, not unmarked and (KEYS[2] or tag == '') and write_mark(tag, now, token, written, floor) or 0
end

-- grant gives the lock to one owner alone. The reads are done. If the first write is refused (out
-- of memory, a replica) nothing has happened; after a write Redis would no longer refuse one for
-- want of memory, so that it has to be this one. If the expiry is refused, for want of a right, the
-- grant is taken back.
local function grant(owner, token, last, meta, expired, expires)
  if meta then
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', token, 'before', last or 0, 'meta', meta)
  else -- it has none, and nobody's is there: to write that would cost a pair 3 %
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', token, 'before', last or 0)
  end
  if expired or not last then -- what was before this hash is not known
    redis.call('HSET', KEYS[1], 'lapsed', expired or token - 1)
  end
  local failed = redis.pcall('PEXPIRE', KEYS[1], expires)
  if type(failed) == 'table' then
    redis.call('HSET', KEYS[1], 'owner', '', 'meta', '')
    return failed
  end
end
