-- uses: KEEP, WHOLE, NUMBER
local now, current = time[1] * 1000000 + time[2], lock[1] or ''
last = tonumber(last)
local late = now - string.sub(due, WHOLE, NUMBER - 1) -- µs since it stopped getting its whole TTL; negative: it gets it
local too_late = late > 0 and late > tonumber(string.match(due, '/(%d+)', NUMBER)) -- for anything
if late > 0 then
  expires = expires - math.floor(late / 1000)
end
local claimed, left = current == '>' .. owner, 0 -- ms
if current ~= '' and not claimed then
  left = redis.call('PTTL', KEYS[1]) - KEEP
end
