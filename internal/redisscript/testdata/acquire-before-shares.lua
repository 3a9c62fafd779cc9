-- A lock is one hash: owner and meta while it is held, and for a minute longer than its TTL
--   token   the latest, so that the next is larger
--   before  the one before it
--   lapsed  the largest token whose hold is known to have ended without a release
--   queue   there if somebody may wait
-- The lock expires KEEP before the key expires. So one PEXPIRE extends it, which Redis allows when it
-- is out of memory; and whoever looks at the key's expiry sees no lock that outlives its TTL.
local KEEP = 60000 -- ms
local AHEAD = KEEP * 500 -- µs that a token may be ahead of a clock that was not set back: it passes it before it is forgotten
-- The server's clock, also in µs as text: that takes Redis half as long as a number, which it has to read and print. All of
-- 16 digits, texts compare as numbers do.
local time = redis.call('TIME')
local clock = time[1] .. string.sub('00000', #time[2]) .. time[2]
local owner, expires, number, due, meta = unpack(ARGV) -- see script.go

-- expire comes after the write of a grant, and takes that back if it fails.
local function expire(key, ms)
  local failed = redis.pcall('PEXPIRE', key, ms)
  if type(failed) == 'table' then -- an error, for want of a right; that to HSET is there
    redis.call('HSET', key, 'owner', '', 'meta', '')
    return failed
  end
end

-- Most often nobody holds the lock, nobody waits for it, and its last hold was released. Then this is all. It comes before the functions
-- of queue.lua, which take their time to be made. The owner's token is the one that it proposes, or else the clock.
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue')
local previous, wanted = lock[2], number == '0' and clock or number
if not lock[1] and not lock[3] and #clock == 16 and clock <= due and previous and #previous == 16 and #wanted == 16 and
    previous < wanted and wanted < '9007199254740992' and
    (number == '0' or tonumber(wanted) <= clock + AHEAD) then
  if meta == '' then -- where there is no owner, there is no metadata of one
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', wanted, 'before', previous)
  else
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', wanted, 'before', previous, 'meta', meta)
  end
  return expire(KEYS[1], expires) or clock
end
-- The mark is one hash of a server, and in a Redis Cluster of a slot, for all locks under a prefix. By it tokens rise though names are
-- forgotten, for by the time that a name's hash is gone the clock has passed its tokens, but for what the mark has:
--   clock  when the mark was last written. No grant came later than COVER after that. If the clock is behind it, it was set back.
--   floor  the largest token that the clock may not have passed
local COVER = 1000000 -- µs: until then the take of a name that is known neither reads nor writes the mark
local UNUSED = 90 * 86400000 -- ms: a prefix that is used no more leaves nothing either

-- mark_of returns the key of the mark. It begins as the lock's does, for users whose rights are to a prefix, and is no lock's: a name's % is
-- escaped. tag is what makes it fall into the lock's slot.
local function mark_of(tag)
  return (string.match(KEYS[1], '^{[^:}]*:') or '{') .. '%mark' .. tag .. '}'
end

-- read_mark returns clock and floor. While a slot moves the mark may not be where the lock is: then nothing is known.
local function read_mark(tag, now)
  local mark = redis.pcall('HMGET', mark_of(tag), 'clock', 'floor')
  local clock, floor = tonumber(mark[1]) or 0, tonumber(mark[2]) or 0
  if now < clock then
    floor, clock = math.max(floor, clock + COVER + AHEAD), 0
  end
  return clock, floor
end

-- write_mark comes before the grant of a token, and returns until when other grants need not write it, or 0 if that is not known.
local function write_mark(tag, now, token, clock, floor)
  local higher = floor
  if token > floor and (token > now + AHEAD or floor > now) then
    higher = token
  end
  if higher == floor and now <= clock + COVER / 2 then
    return clock + COVER
  end
  local written = redis.pcall('HSET', mark_of(tag), 'clock', now, 'floor', higher)
  if type(written) ~= 'number' then
    return 0
  end
  redis.pcall('PEXPIRE', mark_of(tag), UNUSED)
  return now + COVER
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
-- What it takes if the lock is held, or somebody waits for it, or it is taken for the first time: acquire_free.lua has run before.
-- It returns what acquireReplies says. back is 1 if the owner had lost its place and has it again.
local GRANTED, HELD, LATE = 1, 0, -1
local QUEUE = KEYS[2] or KEYS[1] .. ':queue'
local now = time[1] * 1000000 + time[2]
local current, last, queue = lock[1] or '', tonumber(lock[2]), lock[3]
local lapsed -- if that changes
local rest, tag = string.match(due, '(%d*):?(.*)', 33)
local late = math.max(now - tonumber(string.sub(due, 17, 32)), 0)
if late > 0 then
  expires = expires - math.floor(late / 1000)
end

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
local waits, ordered, given = string.find(owner, '/', 1, true), place_of(owner), tonumber(number)
local proposal = math.max(given, 0)
given = tonumber(ordered) or math.max(-given, 0) -- the place of an owner that knows it
if late > tonumber(rest) then
  return {LATE, now}
end

local holder, about = string.sub(current, 1, 1) ~= '>' and current or '', ''
if left <= 0 and not claimed then
  if string.sub(current, 1, 1) == '>' then
    -- Its process is dead, or hangs, or was not told: all of it makes room.
    local process = string.match(current, '^>(.-/)') or current
    for _, waiter in ipairs(redis.pcall('ZRANGE', QUEUE, 0, -1)) do
      if string.sub(waiter, 1, #process) == process then
        redis.pcall('ZREM', QUEUE, waiter)
      end
    end
  elseif current ~= '' then
    lapsed = last -- its holder did not release it
  end
  if queue or waits and given > 0 or not last and redis.pcall('ZCARD', QUEUE) ~= 0 then
    local first = next_waiter(KEYS[1], QUEUE, owner)
    if first == owner then
      redis.call('HSET', KEYS[1], 'queue', 1)
    elseif first then
      claim_for(KEYS[1], first)
      holder = ''
      if lapsed then
        redis.call('HSET', KEYS[1], 'lapsed', lapsed)
      end
      current, left = '>' .. first, CLAIM
    end
  end
end

if left > 0 then
  local place, back, earlier = 0, 0, 0
  if ordered or proposal > 0 then
    holder = '' -- a node of Redlock is asked often, and nobody asks it who holds the lock
  elseif holder ~= '' then
    about = redis.call('HGET', KEYS[1], 'meta') or ''
  end
  if not waits then
    return {HELD, left, now, place, back, earlier, holder, about}
  end
  local theirs = ordered and place_of(current)
  if theirs and (#theirs < #ordered or #theirs == #ordered and theirs < ordered) then
    earlier = 1
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

local marked, floor = read_mark(tag, now)
-- Else the proposer's clock is wrong, or what this server has forgotten may be larger. (A request takes its time: a second.)
local proposed = proposal > 0 and proposal <= now + AHEAD and (last or proposal >= now - 1000000 and proposal > floor)
local token, text = now, nil -- text is token, where Redis need not print it: that takes a tenth of the script
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
local covered = (KEYS[2] or tag == '') and write_mark(tag, now, token, marked, floor) or 0

-- The reads are done. If the first write is refused (out of memory, a replica) nothing has happened; after
-- a write Redis would no longer refuse one for want of memory, so that it has to be this one.
if lapsed then
  redis.call('HSET', KEYS[1], 'owner', owner, 'token', text or token, 'before', last or 0, 'meta', meta, 'lapsed', lapsed)
else
  redis.call('HSET', KEYS[1], 'owner', owner, 'token', text or token, 'before', last or 0, 'meta', meta)
end
return expire(KEYS[1], expires) or {GRANTED, token, now, covered}
