-- ARGV: owner, TTL in ms, proposed token (0: the server's clock in µs), not-after by the server's clock in
-- µs (0: none), metadata.
-- Returns {1, token, now} if granted, {0, ms left, now} if held, {-1, 0, now} if it arrived late.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'lapsed')
local last = tonumber(lock[2]) or 0

if lock[1] then
  local left = redis.call('PTTL', KEYS[1]) - KEEP
  if left > 0 then
    if lock[1] == ARGV[1] then
      return {1, last, now} -- sent twice
    end
    return {0, left, now}
  end
end
local not_after = tonumber(ARGV[4])
if not_after > 0 and now > not_after then
  return {-1, 0, now}
end

local token = tonumber(ARGV[3])
if token == 0 then
  token = now
end
if token <= last then
  token = last + 1
end
if token >= 2^53 then
  return redis.error_reply('ERR locker: the fencing token would reach 2^53, beyond which numbers are not exact')
end
local lapsed = lock[3]
if lock[1] then
  lapsed = last -- its holder did not release it
elseif not lapsed then
  lapsed = token - 1 -- what was before this hash is not known
end

-- A right that is missing half-way would leave what was written before. From Redis 7 on a script can
-- ask; for others there is what follows the write.
if redis.acl_check_cmd and not redis.acl_check_cmd('PEXPIRE', KEYS[1], 1) then
  return redis.error_reply("NOPERM locker: the user has no permission to run the 'pexpire' command")
end

-- The reads are done. If the first write is refused (out of memory, a replica) nothing has happened; after
-- a write Redis would no longer refuse one for want of memory, so that it has to be this one.
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', token, 'lapsed', lapsed, 'meta', ARGV[5])
local expires = redis.pcall('PEXPIRE', KEYS[1], ARGV[2] + KEEP)
if type(expires) == 'table' then -- an error
  redis.pcall('HDEL', KEYS[1], 'owner', 'meta')
  if not lock[2] then
    redis.pcall('DEL', KEYS[1])
  end
  return expires
end
return {1, token, now}
