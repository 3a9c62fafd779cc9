-- What it takes if the lock is held, or somebody waits for it, or it is taken for the first time: acquire_free.lua has run before. And whatever it
-- takes for a share.
-- It returns what acquireReplies says. back is 1 if the owner had lost its place and has it again.
local GRANTED, HELD, LATE = 1, 0, -1
local QUEUE = KEYS[2] or KEYS[1] .. ':queue'
local now = time[1] * 1000000 + time[2]
local current, last, queue = lock[1] or '', tonumber(lock[2]), lock[3]
local lapsed -- if that changes
local rest, tag = string.match(due, '/(%d*):?(.*)', 33)
local late = math.max(now - tonumber(string.sub(due, 17, 32)), 0)
if late > 0 then
  expires = expires - math.floor(late / 1000)
end

local share = string.find(owner, '~', 1, true)
local claimed, left = current == '>' .. owner, 0
if current ~= '' and not claimed then
  left = redis.call('PTTL', KEYS[1]) - KEEP
  if left > 0 and current == owner then
    -- Sent twice: its owner counts the TTL from this one, or has extended it since. And a WAIT behind it waits for what
    -- this connection has written.
    redis.call('PEXPIRE', KEYS[1], math.max(left + KEEP, expires))
    local token, covered = last, 0
    return {GRANTED, token, now, covered}
  end
end
local waits, ordered, given = string.find(owner, '^[^~]*/'), place_of(owner), tonumber(number)
local shared, mine = left > 0 and (current == SHARES or current == CLAIMS), 0
local alone, among -- of those who wait before a share: where the first stands that wants the lock alone; whether it is itself one of those before that
if share and shared then
  mine = tonumber(redis.call('ZSCORE', KEYS[1] .. ':readers', owner)) or 0 -- sent twice
  among = waits and (tonumber(redis.call('ZSCORE', KEYS[1] .. ':readers', '>' .. owner)) or 0) * 1000 > now
  if mine == 0 and not among and redis.call('ZCARD', KEYS[1] .. ':readers') == 0 then
    return redis.error_reply(ELSEWHERE)
  end
end
local proposal = math.max(given, 0)
given = tonumber(ordered) or math.max(-given, 0) -- the place of an owner that knows it
if late > tonumber(rest) and mine * 1000 <= now then
  return {LATE, now}
end

local holder, about = string.find(current, '^[>+]') and '' or current, ''
if left <= 0 and not claimed then
  if string.find(current, '^[>+]') then
    -- A process that has not come for its claim is dead, or hangs, or was not told: all of it makes room.
    local claims, hung = { current }, {}
    if current == SHARES or current == CLAIMS then
      claims = redis.pcall('ZRANGE', KEYS[1] .. ':readers', 0, -1)
    end
    for _, claim in ipairs(claims) do
      hung[string.match(claim, '^>(.-/)') or ''] = true
    end
    for _, waiter in ipairs(redis.pcall('ZRANGE', QUEUE, 0, -1)) do
      if hung[string.match(waiter, '^.-/')] then
        redis.pcall('ZREM', QUEUE, waiter)
      end
    end
  end
  if current ~= '' and string.sub(current, 1, 1) ~= '>' then
    lapsed = last -- its holder did not release it
  end
  if current == SHARES then
    local readers = redis.pcall('ZRANGE', KEYS[1] .. ':readers', 0, -1)
    if #readers > 0 then -- else nobody knows which of them did not
      local _, _, _, _, _, note_gone = queue_of(KEYS[1], QUEUE)
      note_gone(readers)
      lapsed = nil
    end
  end
  if queue or waits and given > 0 or not last and redis.pcall('ZCARD', QUEUE) ~= 0 then
    local next_waiter, hand_over = queue_of(KEYS[1], QUEUE)
    local first = next_waiter(owner)
    if first == owner then
      redis.call('HSET', KEYS[1], 'queue', 1)
    elseif first then
      current, alone, among = hand_over(first, owner)
      shared, left, holder = current == CLAIMS, CLAIM, ''
      if lapsed then
        redis.call('HSET', KEYS[1], 'lapsed', lapsed)
      end
    end
  end
elseif share and shared and queue and not among then
  local _, _, let_in = queue_of(KEYS[1], QUEUE)
  alone, among = let_in(owner)
end

if left > 0 and not (share and shared and (mine * 1000 > now or among or not alone or given > 0 and given < alone)) then
  local place, back, earlier = 0, 0, 0
  if ordered or proposal > 0 then
    holder = '' -- a node of Redlock is asked often, and nobody asks it who holds the lock
  elseif holder ~= '' then
    about = redis.call('HGET', KEYS[1], 'meta') or ''
  end
  if not waits then
    return {HELD, left, now, place, back, earlier, holder, about}
  end
  if shared and not share and redis.call('HGET', KEYS[1], 'first') == owner then
    redis.call('HSET', KEYS[1], 'seen', now)
  end
  local theirs = ordered and place_of(current)
  if theirs and (#theirs < #ordered or #theirs == #ordered and theirs < ordered) then
    earlier = 1
  end
  if not KEYS[2] and redis.pcall('ZCARD', QUEUE) == 0 then
    -- The slot moves, and the queue may be where it comes from: a second one would stop the move. To be asked again.
    return {HELD, left, now, place, back, earlier, holder, about}
  end
  local score = given
  local latest = redis.pcall('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2]
  if given == 0 then
    score = math.max(now, (tonumber(latest) or 0) + 1) -- the clock may have been set back
  end
  local added = redis.pcall('ZADD', QUEUE, 'NX', score, owner)
  if type(added) == 'table' then -- an error
    if KEYS[2] then
      return added
    end
    return {HELD, left, now, place, back, earlier, holder, about} -- the slot moves, and the queue is not where the lock is: to be asked again
  end
  place = score
  if given > 0 then
    back = added
  elseif added == 0 then
    place = tonumber(redis.call('ZSCORE', QUEUE, owner)) -- sent twice
  end
  if not queue then
    redis.call('HSET', KEYS[1], 'queue', 1)
  end
  if given > 0 or not latest then
    redis.call('PEXPIRE', QUEUE, FORGOTTEN)
  end
  return {HELD, left, now, place, back, earlier, holder, about}
end

-- text is token, where Redis need not print it: that takes a tenth of the script
local token, text, covered = last, nil, 0
local minted = not (share and last and current == SHARES and left > 0) -- else it has that of the others
if minted then
  -- As in acquire_free.lua, the grant of a name that is known needs no mark until the mark's cover ends.
  local unmarked = last and last < now + AHEAD and clock <= due
  local marked, floor = 0, 0
  if not unmarked then
    marked, floor = read_mark(tag, now)
  end
  -- Else the proposer's clock is wrong, or what this server has forgotten may be larger. (A request takes its time: a second.)
  local proposed = proposal > 0 and proposal <= now + AHEAD and (last or proposal >= now - 1000000 and proposal > floor)
  token = now
  if proposed then
    token, text = proposal, number
  elseif not last and token <= floor then
    token = floor + 1
  end
  if last and token <= last then
    token, text = last + 1, nil
  end
  if token >= 2^53 then
    return redis.error_reply('ERR locker: the fencing token would reach 2^53, beyond which numbers are not exact')
  end
  if not last then
    lapsed = token - 1 -- what was before this hash is not known
    -- A hash that cannot be given an expiry must not come to be. From Redis 7 on a script can ask.
    if redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIRE', KEYS[1], 1) then
      return redis.error_reply("NOPERM locker: the user has no permission to run the 'pexpire' command")
    end
  end

  -- In a Cluster there is no second key where a slot moves: the mark may be elsewhere, and must not come to be in two places.
  covered = not unmarked and (KEYS[2] or tag == '') and write_mark(tag, now, token, marked, floor) or 0
end
