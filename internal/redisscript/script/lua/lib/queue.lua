-- The queue. A release claims the lock for the first that waits. So the lock has an owner or a
-- claim while somebody waits, and nobody gets in ahead.

local CLAIM = 2000 -- ms that a claim lasts at the longest
local FORGOTTEN = 60000 -- ms after which a queue that nobody looks at is removed

local subscribed = {} -- by process, what reachable has found out

-- reachable reports whether a waiter can be told: it polls, or its process is subscribed.
local function reachable(waiter)
  local kind, process = string.match(waiter, '^([ps])(.-)/')
  if kind and subscribed[process] == nil then
    -- Not the count that PUBLISH returns: there a monitor's PSUBSCRIBE * counts.
    local subscribers = redis.pcall('PUBSUB', kind == 's' and 'SHARDNUMSUB' or 'NUMSUB', KEYS[1] .. ':' .. process)
    subscribed[process] = subscribers[2] ~= 0 -- an error says nothing
  end
  return not kind or subscribed[process]
end

-- tell ends with PUBLISH, which may be refused.
local function tell(waiter)
  local kind, process = string.match(waiter, '^([ps])(.-)/')
  if kind then
    redis.pcall(kind == 's' and 'SPUBLISH' or 'PUBLISH', KEYS[1] .. ':' .. process, waiter)
  end
end

-- next_waiter takes the first off the queue that is reachable, or is asks, which asks just now; and
-- all before it. Who is alive and has been passed over finds out with its next look, and comes back
-- to its place.
local function next_waiter(asks)
  while true do
    local first = redis.pcall('ZPOPMIN', QUEUE)[1]
    if not first or first == asks or reachable(first) then
      return first
    end
  end
end

-- enqueue gives a waiter the place that it had, or the last if that is 0. flagged: what the lock's
-- hash says of the queue. It returns the place, and 1 if the waiter had lost it; or else why
-- there is none. While the slot moves the queue may be where it comes from, and a second one would
-- stop the move: then the place is 0, and the waiter is to ask again.
local function enqueue(waiter, place, now, flagged, owner)
  if is_shared(owner) and not wants_share(waiter) and redis.call('HGET', KEYS[1], 'first') == waiter then
    redis.call('HSET', KEYS[1], 'seen', now) -- it is still there
  end
  if not KEYS[2] and redis.pcall('ZCARD', QUEUE) == 0 then
    return 0, 0
  end
  local latest = redis.pcall('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2]
  local score = place > 0 and place or math.max(now, (tonumber(latest) or 0) + 1) -- the clock may have been set back
  local added = redis.pcall('ZADD', QUEUE, 'NX', score, waiter)
  if type(added) == 'table' then -- an error
    if KEYS[2] then
      return nil, nil, added
    end
    return 0, 0
  end
  if flagged ~= '1' then
    for process in string.gmatch(flagged or '', '[ps].-/') do
      tell(process)
    end
    redis.call('HSET', KEYS[1], 'queue', 1)
  end
  if place > 0 or not latest then
    redis.call('PEXPIRE', QUEUE, FORGOTTEN)
  end
  if added == 0 then
    score = tonumber(redis.call('ZSCORE', QUEUE, waiter)) -- it is there already
  end
  return score, place > 0 and added or 0
end
