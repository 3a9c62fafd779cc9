-- end_share ends a share of an owner, or what is claimed for it if '>' is before that. It returns 1, or 0 if it had expired, or nil if there is none; and
-- whether it was the last. Then it hands over.
local function end_share(key, queue, owner)
  local readers, time = key .. ':readers', redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  local ends = tonumber(redis.call('ZSCORE', readers, owner))
  if not ends or ends <= now then
    return ends and 0
  end
  redis.call('ZREM', readers, owner)
  local longest = redis.call('ZRANGE', readers, -1, -1, 'WITHSCORES')
  local left = longest[2] and tonumber(longest[2]) - now or 0
  if left > 0 then
    if tonumber(longest[2]) < ends then
      redis.call('PEXPIRE', key, left + KEEP)
    end
    return 1
  end
  local next_waiter, hand_over, _, _, forget_readers, note_gone = queue_of(key, queue)
  if longest[1] then -- they have expired
    note_gone(redis.call('ZRANGE', readers, 0, -1))
    forget_readers()
  end
  local waiter = redis.call('HGET', key, 'queue') and next_waiter()
  if waiter then
    hand_over(waiter)
  else
    redis.call('HDEL', key, 'owner', 'meta', 'queue', 'first', 'seen', 'writer')
  end
  return 1, true
end
