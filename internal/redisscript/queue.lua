-- Who waits is in a sorted set, by the time of first asking: the waiter's place. Its owner begins with
--   p process /   it is subscribed to the channel key:process
--   s process /   the same, and the channel is a sharded one
--   - process /   it is not subscribed, and polls
-- and, if it waits at several servers in the same order, with its place and a / after that. Others have the server's clock as their place.
-- A release claims the lock for the first: the hash's owner is then '>' and the waiter's, for CLAIM at the
-- longest. So the lock always has an owner or a claim while somebody waits, and nobody gets in ahead.
local CLAIM = 2000 -- ms
local FORGOTTEN = 60000 -- ms: a queue that nobody looks at

-- next_waiter takes the first off the queue of key that is subscribed, or asks just now, and all before it. Who is alive and has been
-- passed over finds out with its next look, and comes back to its place.
local function next_waiter(key, queue, asks)
  local subscribed = {}
  while true do
    local first = redis.pcall('ZPOPMIN', queue)[1]
    if not first then
      return nil
    end
    local kind, process = string.match(first, '^([ps])(.-)/')
    if not kind or first == asks then
      return first
    end
    if subscribed[process] == nil then
      -- Not the count that PUBLISH returns: there a monitor's PSUBSCRIBE * counts.
      local subscribers = redis.pcall('PUBSUB', kind == 's' and 'SHARDNUMSUB' or 'NUMSUB', key .. ':' .. process)
      subscribed[process] = subscribers[2] ~= 0 -- an error says nothing
    end
    if subscribed[process] then
      return first
    end
  end
end

-- claim_for ends with PUBLISH, which may be refused.
local function claim_for(key, waiter)
  redis.call('HSET', key, 'owner', '>' .. waiter, 'meta', '', 'queue', 1)
  redis.call('PEXPIRE', key, CLAIM + KEEP)
  local kind, process = string.match(waiter, '^([ps])(.-)/')
  if kind then
    redis.pcall(kind == 's' and 'SPUBLISH' or 'PUBLISH', key .. ':' .. process, waiter)
  end
end

-- place_of returns the place that an owner has in its name, or one that the lock is claimed for: digits, of which a number has the first 15.
local function place_of(owner)
  return string.match(owner, '^>?[ps-][^/]*/(%d+)/')
end
