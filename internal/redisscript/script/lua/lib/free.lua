  if meta == '' then -- where there is no owner, there is no metadata of one
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', token, 'before', last)
  else
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', token, 'before', last, 'meta', meta)
  end
  local failed = redis.pcall('PEXPIRE', KEYS[1], expires)
  if type(failed) ~= 'table' then
    return clock
  end
  redis.call('HSET', KEYS[1], 'owner', '', 'meta', '') -- for want of a right
  return failed
