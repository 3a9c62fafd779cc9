-- ARGV: owner, TTL in ms, proposed token (0: the server's clock in µs), not-after by the server's clock in
-- µs (0: none), metadata.
-- Returns {1, token, now} if granted, {0, ms left, now} if held, {-1, 0, now} if it arrived late.
local time = redis.call('TIME')
local now = time[1] * 1000000 + time[2]
local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'lapsed')
local owner, last, lapsed = lock[1] or '', tonumber(lock[2]), lock[3]

if owner ~= '' then
  local left = redis.call('PTTL', KEYS[1]) - KEEP
  if left > 0 then
    if owner == ARGV[1] then
      return {1, last, now} -- sent twice
    end
    return {0, left, now}
  end
  lapsed = last -- its holder did not release it
end
local not_after = tonumber(ARGV[4])
if not_after > 0 and now > not_after then
  return {-1, 0, now}
end

local token = tonumber(ARGV[3])
if token == 0 then
  token = now
end
if last and token <= last then
  token = last + 1
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
redis.call('HSET', KEYS[1], 'owner', ARGV[1], 'token', token, 'lapsed', lapsed, 'meta', ARGV[5])
local expires = redis.pcall('PEXPIRE', KEYS[1], ARGV[2] + KEEP)
if type(expires) == 'table' then -- an error, for want of a right; that to HSET is there
  redis.call('HSET', KEYS[1], 'owner', '', 'meta', '')
  return expires
end
return {1, token, now}
