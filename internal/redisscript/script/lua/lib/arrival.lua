-- uses: KEEP, lateness
local now, current = time[1] * 1000000 + time[2], lock[1] or ''
last = tonumber(last)
local late, too_late = lateness(due, now)
if late > 0 then
  expires = expires - math.floor(late / 1000)
end
local claimed, left = current == '>' .. owner, 0 -- ms
if current ~= '' and not claimed then
  left = redis.call('PTTL', KEYS[1]) - KEEP
end
