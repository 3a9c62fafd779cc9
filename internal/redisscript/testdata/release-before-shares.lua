-- A lock is one hash: owner and meta while it is held, and for a minute longer than its TTL
--   token   the latest, so that the next is larger
--   before  the one before it
--   lapsed  the largest token whose hold is known to have ended without a release
--   queue   there if somebody may wait
-- The lock expires KEEP before the key expires. So one PEXPIRE extends it, which Redis allows when it
-- is out of memory; and whoever looks at the key's expiry sees no lock that outlives its TTL.
local KEEP = 60000 -- ms
local AHEAD = KEEP * 500 -- µs that a token may be ahead of a clock that was not set back: it passes it before it is forgotten
local owner, token, sent = unpack(ARGV) -- see script.go

-- Most often the hold is there and nobody waits for the lock. Then this is all. It comes before the functions of queue.lua, which take
-- their time to be made. Returns 1, or 0 if the hold had ended before.
local lock = redis.call('HMGET', KEYS[1], 'owner', 'queue')
local ours = lock[1] == owner or lock[1] == '>' .. owner
if ours and redis.call('PTTL', KEYS[1]) <= KEEP then
  return 0 -- left as it is: the next take sees that it expired
elseif ours and not lock[2] then
  redis.call('HDEL', KEYS[1], 'owner', 'meta')
  return 1
end
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
-- What it takes if somebody waits for the lock, or the hold is not there: release_free.lua has run before. Returns what that does.
local QUEUE = KEYS[2] or KEYS[1] .. ':queue'
if ours then
  local waiter = lock[2] and next_waiter(KEYS[1], QUEUE)
  if waiter then
    claim_for(KEYS[1], waiter)
  else
    redis.call('HDEL', KEYS[1], 'owner', 'meta', 'queue')
  end
  return 1
end
token = tonumber(token)
if token == 0 then
  return redis.call('ZREM', QUEUE, owner) -- it waited
end
-- Was it released the first time that this was sent, and the reply lost? Then the hold was granted here, and did not expire; and
-- it is not the one that is there now. What is sent for the first time is not here because it expired, or because a failover
-- forgot it. One that several holds have followed may have been forgotten too: only the last two tokens are known.
local known = redis.call('HMGET', KEYS[1], 'token', 'before', 'lapsed')
local last, before, lapsed = tonumber(known[1]), tonumber(known[2]), tonumber(known[3])
local current = lock[1] or ''
local held = current ~= '' and string.sub(current, 1, 1) ~= '>'
local granted = token == before or token == last and not held
if tonumber(sent) > 0 and granted and lapsed and lapsed < token then
  return 1
end
return 0
