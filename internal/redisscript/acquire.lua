-- ARGV: owner, TTL + KEEP in ms, a number, when it is due, metadata. The number
-- is the place in the queue of an owner that waits (0: the last), else a proposed token (0: the server's
-- clock in µs, as it is for a proposal too far from that). It is one, for Redis takes no more than ten arguments of those who
-- have yet to give a password.
-- Due are 16 digits, the server's clock in µs until when it gets the whole TTL, and behind them for how many µs more it gets
-- what is left of that.
-- Returns {1, token, now} if granted, or the token alone if that is now; {0, ms left, now, place, back} if held;
-- {-1, 0, now} if it arrived too late. back is 1 if the owner had lost its place and has it again.
-- Below is what it takes if acquire_free has found lock, and that it is held, or is taken for the first time.
local QUEUE = KEYS[2] or KEYS[1] .. ':queue'
local now = time[1] * 1000000 + time[2]
local owner, last, queue = lock[1] or '', tonumber(lock[2]), lock[3]
local lapsed -- if that changes
local late, expires = math.max(now - tonumber(string.sub(ARGV[4], 1, 16)), 0), ARGV[2]
if late > 0 then
  expires = ARGV[2] - math.floor(late / 1000)
end

local claimed, left = owner == '>' .. ARGV[1], 0
if owner ~= '' and not claimed then
  left = redis.call('PTTL', KEYS[1]) - KEEP
  if left > 0 and owner == ARGV[1] then
    -- Sent twice: its owner counts the TTL from this one, or has extended it since. And a WAIT behind it waits for what
    -- this connection has written.
    redis.call('PEXPIRE', KEYS[1], math.max(left + KEEP, expires))
    return {1, last, now}
  end
end
local waits, number = string.find(ARGV[1], '/', 1, true), tonumber(ARGV[3])
if late > tonumber(string.sub(ARGV[4], 17)) then
  return {-1, 0, now}
end

if left <= 0 and not claimed then
  if string.sub(owner, 1, 1) == '>' then
    -- Its process is dead, or hangs, or was not told: all of it makes room.
    local process = string.match(owner, '^>(.-/)') or owner
    for _, waiter in ipairs(redis.pcall('ZRANGE', QUEUE, 0, -1)) do
      if string.sub(waiter, 1, #process) == process then
        redis.pcall('ZREM', QUEUE, waiter)
      end
    end
  elseif owner ~= '' then
    lapsed = last -- its holder did not release it
  end
  if queue or waits and number > 0 or not last and redis.pcall('ZCARD', QUEUE) ~= 0 then
    local first = next_waiter(KEYS[1], QUEUE, ARGV[1])
    if first == ARGV[1] then
      redis.call('HSET', KEYS[1], 'queue', 1)
    elseif first then
      claim_for(KEYS[1], first)
      if lapsed then
        redis.call('HSET', KEYS[1], 'lapsed', lapsed)
      end
      left = CLAIM
    end
  end
end

if left > 0 and not waits then
  return {0, left, now, 0, 0}
end
if left > 0 then
  local place, back = number, 0
  local latest = redis.pcall('ZRANGE', QUEUE, -1, -1, 'WITHSCORES')[2]
  if number == 0 then
    place = math.max(now, (tonumber(latest) or 0) + 1) -- the clock may have been set back
  end
  local added = redis.pcall('ZADD', QUEUE, 'NX', place, ARGV[1])
  if type(added) == 'table' then -- an error
    if KEYS[2] then
      return added
    end
    return {0, left, now, 0, 0} -- the slot moves, and the queue is not where the lock is: to be asked again
  end
  if number > 0 then
    back = added
  elseif added == 0 then
    place = tonumber(redis.call('ZSCORE', QUEUE, ARGV[1])) -- sent twice
  end
  if not queue then
    redis.call('HSET', KEYS[1], 'queue', 1)
  end
  if number > 0 or not latest then
    redis.call('PEXPIRE', QUEUE, FORGOTTEN)
  end
  return {0, left, now, place, back}
end

local token, text = now, nil -- text is token, where Redis need not print it: that takes a tenth of the script
if number > 0 and not waits and number <= now + AHEAD and (last or number >= now - 1000000) then
  -- Else the proposer's clock is wrong, or what this server has forgotten may be larger. (A request takes its time: a second.)
  token, text = number, ARGV[3]
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

-- The reads are done. If the first write is refused (out of memory, a replica) nothing has happened; after
-- a write Redis would no longer refuse one for want of memory, so that it has to be this one.
if lapsed then
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', text or token, 'before', last or 0, 'meta', ARGV[5], 'lapsed', lapsed)
else
  redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', text or token, 'before', last or 0, 'meta', ARGV[5])
end
return expire(KEYS[1], expires) or {1, token, now}
