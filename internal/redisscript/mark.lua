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
