-- Who waits is in a sorted set, by the time of first asking: the waiter's place. Its owner begins with
--   p process /   it is subscribed to the channel key:process
--   s process /   the same, and the channel is a sharded one
--   - process /   it is not subscribed, and polls
-- and, if it waits at several servers in the same order, with its place and a / after that. Others have the server's clock as their place.
-- What asks for a share has a ~ in its owner, and after a line feed its metadata, which may have any characters.
-- A release claims the lock for the first: the hash's owner is then '>' and the waiter's, for CLAIM at the
-- longest. So the lock always has an owner or a claim while somebody waits, and nobody gets in ahead.
local CLAIM = 2000 -- ms
local FORGOTTEN = 60000 -- ms: a queue that nobody looks at
local SUBSCRIBING = 1000000 -- µs that a waiter has for it before a share goes to one behind it
local ABSENT = 5000000 -- µs without a look of the first of all waiters, which looks every 1.5 s: it waits no more, or its process hangs
-- While there are shares the hash's owner is SHARES, and the key expires KEEP after the last of them. They are in a sorted set, by when they
-- expire, in ms: each by its owner, and what is claimed for a waiter by '>' and its owner. If there are claims alone the hash's owner is CLAIMS.
--   shared  the latest token of shares
--   reader  the last of them that was released
--   gone    a token, and those of its shares that are known to have ended without a release, each after a line feed
--   writer  who had the lock alone and made it a share: meta is its own
--   first   who stands first in the queue, wants the lock alone, and has others behind it that want a share. It is found out anew when shares
--           begin: nobody notes a look while the lock is held alone
--   seen    when it last asked since that was found out, in µs
local SHARES, CLAIMS = '+', '>+'

-- id_of returns an owner without its metadata.
local function id_of(owner) return string.match(owner, '^[^\n]*') end

-- queue_of makes the functions for a lock and its queue, which takes its time: most often nobody needs them.
local function queue_of(key, queue)
  local readers = key .. ':readers'

  -- keep_readers has the shares of key be there for as long as the hash: whoever finds that the lock has expired finds which of them had.
  local function keep_readers(ms) return redis.pcall('PEXPIRE', readers, ms + KEEP) end

  -- note_gone notes which members of the readers have ended without a release. Of many it notes that some have.
  local function note_gone(members)
    local known = redis.call('HMGET', key, 'token', 'gone', 'lapsed')
    local token, gone = known[1], known[2] or ''
    local before = string.match(gone, '^%d*')
    if before ~= token then
      if before ~= '' and tonumber(before) > tonumber(known[3] or 0) then
        redis.call('HSET', key, 'lapsed', before)
      end
      gone = token
    end
    for _, member in ipairs(members) do
      if string.sub(member, 1, 1) ~= '>' then
        gone = gone .. '\n' .. id_of(member)
      end
    end
    if #gone > 1000 then
      redis.call('HSET', key, 'lapsed', token)
    else
      redis.call('HSET', key, 'gone', gone)
    end
  end

  -- subscribed has what reachable has found out of processes.
  local subscribed = {}
  local function reachable(waiter)
    local kind, process = string.match(waiter, '^([ps])(.-)/')
    if kind and subscribed[process] == nil then
      -- Not the count that PUBLISH returns: there a monitor's PSUBSCRIBE * counts.
      local subscribers = redis.pcall('PUBSUB', kind == 's' and 'SHARDNUMSUB' or 'NUMSUB', key .. ':' .. process)
      subscribed[process] = subscribers[2] ~= 0 -- an error says nothing
    end
    return not kind or subscribed[process]
  end

  -- next_waiter takes the first off the queue of key that is subscribed, or asks just now, and all before it. Who is alive and has been
  -- passed over finds out with its next look, and comes back to its place.
  local function next_waiter(asks)
    while true do
      local first = redis.pcall('ZPOPMIN', queue)[1]
      if not first or first == asks or reachable(first) then
        return first
      end
    end
  end

  -- tell ends with PUBLISH, which may be refused.
  local function tell(waiter)
    local kind, process = string.match(waiter, '^([ps])(.-)/')
    if kind then
      redis.pcall(kind == 's' and 'SPUBLISH' or 'PUBLISH', key .. ':' .. process, waiter)
    end
  end

  -- comes reports whether the first of the queue, which wants the lock alone, is still there to take it: if not, who is alive comes back to its place.
  local function comes(waiter, place, now)
    local age = now - place
    if age >= 0 and age < SUBSCRIBING then
      return true
    elseif not reachable(waiter) then
      return false
    end
    local known = redis.call('HMGET', key, 'first', 'seen')
    local absence = known[1] == waiter and now - known[2] or -1
    if absence < 0 then -- or the clock was set back
      redis.pcall('HSET', key, 'first', waiter, 'seen', now)
    elseif absence >= ABSENT then
      redis.call('HDEL', key, 'first')
    end
    return absence < ABSENT
  end

  -- let_in takes the waiters off the head of the queue that want a share, and claims one for each but asks, which asks just now. It returns the place of
  -- the first that wants the lock alone, if there is one, and whether asks was among those before it.
  local function let_in(asks)
    local at_once, among = 1, false -- most often the first wants the lock alone
    local time = redis.call('TIME')
    local now = time[1] * 1000000 + time[2]
    local ends = math.floor(now / 1000) + CLAIM
    while true do
      local some, place, off, claims = redis.pcall('ZRANGE', queue, 0, at_once - 1, 'WITHSCORES'), nil, {}, {}
      for i = 1, #some, 2 do
        local waiter = some[i]
        if not string.find(waiter, '~', 1, true) then
          if waiter == asks or comes(waiter, some[i + 1], now) then
            place = tonumber(some[i + 1])
            break
          end
        elseif waiter == asks then
          among = true
        elseif reachable(waiter) then
          claims[#claims + 1] = ends
          claims[#claims + 1] = '>' .. waiter
        end
        off[#off + 1] = waiter
      end
      if #claims > 0 and type(redis.pcall('ZADD', readers, unpack(claims))) == 'table' then
        return 0, among -- the slot moves: they stay in the queue, and nobody comes ahead of them
      end
      if #off > 0 then
        redis.call('ZREM', queue, unpack(off))
      end
      for i = 2, #claims, 2 do
        tell(string.sub(claims[i], 2))
      end
      if #claims > 0 and redis.call('PTTL', key) < CLAIM + KEEP then
        redis.call('PEXPIRE', key, CLAIM + KEEP)
        keep_readers(CLAIM)
      end
      if place or #off < at_once then
        return place, among
      end
      at_once = 100
    end
  end

  -- forget_readers removes what shares have left of which the last has expired.
  local function forget_readers()
    if redis.pcall('ZCARD', readers) ~= 0 then
      redis.pcall('PEXPIRE', readers, 0)
    end
  end

  -- hand_over claims the lock for the waiter that was the first. If that wants a share, it claims one for each that has nobody but others like it
  -- before it, and returns what let_in does.
  local function hand_over(waiter, asks)
    local claim, place, among = '>' .. waiter, nil, false
    if string.find(waiter, '~', 1, true) then
      forget_readers()
      local time = redis.call('TIME')
      if redis.pcall('ZADD', readers, time[1] * 1000 + math.floor(time[2] / 1000) + CLAIM, claim) == 1 then -- else the slot moves
        claim = CLAIMS
      end
    end
    if claim == CLAIMS then
      redis.call('HSET', key, 'owner', claim, 'meta', '', 'queue', 1, 'first', '')
    else
      redis.call('HSET', key, 'owner', claim, 'meta', '', 'queue', 1)
    end
    redis.call('PEXPIRE', key, CLAIM + KEEP)
    tell(waiter)
    if claim == CLAIMS then
      place, among = let_in(asks)
      keep_readers(CLAIM)
    end
    return claim, place, among
  end

  return next_waiter, hand_over, let_in, keep_readers, forget_readers, note_gone
end

-- place_of returns the place that an owner has in its name, or one that the lock is claimed for: digits, of which a number has the first 15.
local function place_of(owner)
  return string.match(owner, '^>?[ps-][^/]*/(%d+)/')
end
