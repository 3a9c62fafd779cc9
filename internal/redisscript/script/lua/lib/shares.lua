-- Shares. Those that are held at the same time have the same token. The hash expires KEEP after the
-- last of them.

local SUBSCRIBING = 1000000 -- µs that a waiter has for it before a share goes to one behind it
local ABSENT = 5000000 -- µs without a look of the first of all waiters, which looks every 1.5 s: it waits no more, or its process hangs

-- keep_readers keeps the readers for as long as the hash, or CLAIM less, for admit prolongs the hash
-- alone: whoever finds the lock expired finds which readers had it.
local function keep_readers(ms) return redis.pcall('PEXPIRE', READERS, ms + KEEP) end

-- forget_readers removes what shares have left of which the last has expired.
local function forget_readers()
  if redis.pcall('ZCARD', READERS) ~= 0 then
    redis.pcall('PEXPIRE', READERS, 0)
  end
end

-- note_gone notes which members of the readers have ended without a release. Of many it notes that
-- some have.
local function note_gone(members)
  local known = redis.call('HMGET', KEYS[1], 'token', 'gone', 'lapsed')
  local token, gone = known[1], known[2] or ''
  local before = string.match(gone, '^%d*')
  if before ~= token then
    if before ~= '' and tonumber(before) > tonumber(known[3] or 0) then
      redis.call('HSET', KEYS[1], 'lapsed', before)
    end
    gone = token
  end
  for _, member in ipairs(members) do
    if string.sub(member, 1, 1) ~= '>' then
      gone = gone .. '\n' .. id_of(member)
    end
  end
  if #gone > 1000 then
    redis.call('HSET', KEYS[1], 'lapsed', token)
  else
    redis.call('HSET', KEYS[1], 'gone', gone)
  end
end

-- comes reports whether the first of the queue, which wants the lock alone, is still there to take
-- it. If not, and it is alive, it comes back to its place.
local function comes(waiter, place, now)
  local age = now - place
  if age >= 0 and age < SUBSCRIBING then
    return true
  elseif not reachable(waiter) then
    return false
  end
  local known = redis.call('HMGET', KEYS[1], 'first', 'seen')
  local absence = known[1] == waiter and now - known[2] or -1
  if absence < 0 then -- or the clock was set back
    redis.pcall('HSET', KEYS[1], 'first', waiter, 'seen', now)
  elseif absence >= ABSENT then
    redis.call('HDEL', KEYS[1], 'first')
  end
  return absence < ABSENT
end

-- admit takes those off the head of the queue that want a share, and claims one for each but asks,
-- which asks just now. It returns the place of the first that wants the lock alone, if there is
-- one, and whether asks was before it.
local function admit(asks)
  local at_once, admitted = 1, false -- most often the first wants the lock alone
  local time = redis.call('TIME')
  local now = time[1] * 1000000 + time[2]
  local ends = math.floor(now / 1000) + CLAIM
  while true do
    local some, writer_at, off, claims = redis.pcall('ZRANGE', QUEUE, 0, at_once - 1, 'WITHSCORES'), nil, {}, {}
    for i = 1, #some, 2 do
      local waiter = some[i]
      if not wants_share(waiter) then
        if waiter == asks or comes(waiter, some[i + 1], now) then
          writer_at = tonumber(some[i + 1])
          break
        end
      elseif waiter == asks then
        admitted = true
      elseif reachable(waiter) then
        claims[#claims + 1] = ends
        claims[#claims + 1] = '>' .. waiter
      end
      off[#off + 1] = waiter
    end
    if #claims > 0 and type(redis.pcall('ZADD', READERS, unpack(claims))) == 'table' then
      return 0, admitted -- the slot moves: they stay in the queue, and nobody comes ahead of them
    end
    if #off > 0 then
      redis.call('ZREM', QUEUE, unpack(off))
    end
    for i = 2, #claims, 2 do
      tell(string.sub(claims[i], 2))
    end
    if #claims > 0 and redis.call('PTTL', KEYS[1]) < CLAIM + KEEP then
      redis.call('PEXPIRE', KEYS[1], CLAIM + KEEP)
    end
    if writer_at or #off < at_once then
      return writer_at, admitted
    end
    at_once = 100
  end
end

-- hand_over claims the lock for the waiter that was the first. If that wants a share, it claims one
-- for each that has nobody but others like it before it, and returns what admit does after the
-- lock's new owner.
local function hand_over(waiter, asks)
  local claim, writer_at, admitted = '>' .. waiter, nil, false
  if wants_share(waiter) then
    forget_readers()
    local time = redis.call('TIME')
    if redis.pcall('ZADD', READERS, time[1] * 1000 + math.floor(time[2] / 1000) + CLAIM, claim) == 1 then -- else the slot moves
      claim = CLAIMS
    end
  end
  redis.call('HSET', KEYS[1], 'owner', claim, 'meta', '', 'queue', 1)
  redis.call('PEXPIRE', KEYS[1], CLAIM + KEEP)
  tell(waiter)
  if claim == CLAIMS then
    redis.call('HSET', KEYS[1], 'first', '')
    writer_at, admitted = admit(asks)
    keep_readers(CLAIM)
  end
  return claim, writer_at, admitted
end

-- pass_on ends what is held: it hands over to who waits first, or leaves the lock free. flagged:
-- somebody may wait.
local function pass_on(flagged)
  local waiter = flagged and next_waiter()
  if waiter then
    hand_over(waiter)
  else
    redis.call('HDEL', KEYS[1], 'owner', 'meta', 'queue', 'first', 'seen', 'writer')
  end
end

-- end_share ends a member of the readers: a share, or a claim of one. It returns 1, or 0 if it had
-- expired, or nil if there is none; and whether it was the last. Then it passes the lock on.
local function end_share(member)
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local ends = tonumber(redis.call('ZSCORE', READERS, member))
  if not ends or ends <= now then
    return ends and 0
  end
  redis.call('ZREM', READERS, member)
  local longest = redis.call('ZRANGE', READERS, -1, -1, 'WITHSCORES')
  local left = longest[2] and tonumber(longest[2]) - now or 0
  if left > 0 then
    redis.call('PEXPIRE', KEYS[1], left + KEEP)
    return 1
  end
  if longest[1] then -- they have expired
    note_gone(redis.call('ZRANGE', READERS, 0, -1))
    forget_readers()
  end
  pass_on(redis.call('HGET', KEYS[1], 'queue'))
  return 1, true
end
