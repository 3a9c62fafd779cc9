-- expire is what comes behind the write of a grant, and takes that back if it fails.
local function expire(key, ms)
  local expires = redis.pcall('PEXPIRE', key, ms)
  if type(expires) == 'table' then -- an error, for want of a right; that to HSET is there
    redis.call('HSET', key, 'owner', '', 'meta', '')
    return expires
  end
end

-- acquire_free takes a lock that nobody holds and nobody waits for, and whose last hold was released, as most often it is.
-- It has the arguments of acquire.lua, and returns what that does; nil and what it has read if the lock is not such a one.
local function acquire_free(key, owner, ms, number, due, meta)
  local lock = redis.call('HMGET', key, 'owner', 'token', 'queue')
  local token = lock[2]
  if lock[1] or lock[3] or number ~= '0' or #clock ~= 16 or not token or #token ~= 16 or token >= clock or
      clock > due or clock >= '9007199254740992' then
    return nil, lock
  end
  if meta == '' then -- where there is no owner, there is no metadata of one
    redis.call('HSET', key, 'owner', owner, 'token', clock, 'before', token)
  else
    redis.call('HSET', key, 'owner', owner, 'token', clock, 'before', token, 'meta', meta)
  end
  return expire(key, ms) or clock
end
