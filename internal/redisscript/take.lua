local owner, expires, due, meta = unpack(ARGV) -- see script.go
local number = string.sub(due, 33, 34) == '0/' and '0' or string.match(due, '^%-?%d+', 33)

-- expire comes after the write of a grant, and takes that back if it fails.
local function expire(key, ms)
  local failed = redis.pcall('PEXPIRE', key, ms)
  if type(failed) == 'table' then -- an error, for want of a right; that to HSET is there
    redis.call('HSET', key, 'owner', '', 'meta', '')
    return failed
  end
end

local lock = redis.call('HMGET', KEYS[1], 'owner', 'token', 'queue')
