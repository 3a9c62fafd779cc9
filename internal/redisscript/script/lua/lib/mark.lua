-- The mark is one hash of a server, and in a Redis Cluster of a slot, for all locks under a prefix.
-- By it tokens rise though names are forgotten: by the time that a name's hash is gone the clock
-- has passed its tokens, but for what the mark has.
--   clock  when the mark was last written. No grant came later than COVER after that. If the clock is behind it, it was set back.
--   floor  the largest token that the clock may not have passed

local COVER = 1000000 -- µs: until then the take of a name that is known neither reads nor writes the mark
local UNUSED = 90 * 86400000 -- ms after which the mark of a prefix that is not used is removed

-- mark_of returns the key of the mark. It begins as the lock's does, for users whose rights are to
-- a prefix, and is no lock's: a name's % is escaped. tag makes it fall into the lock's slot.
local function mark_of(tag) return (string.match(KEYS[1], '^{[^:}]*:') or '{') .. '%mark' .. tag .. '}' end

-- read_mark returns when the mark was written, and its floor. While a slot moves the mark may not
-- be where the lock is: then nothing is known.
local function read_mark(tag, now)
  local mark = redis.pcall('HMGET', mark_of(tag), 'clock', 'floor')
  local written, floor = tonumber(mark[1]) or 0, tonumber(mark[2]) or 0
  if now < written then
    floor, written = math.max(floor, written + COVER + AHEAD), 0
  end
  return written, floor
end

-- write_mark comes before the grant of a token. It returns until when other grants need not write
-- the mark, or 0 if that is not known.
local function write_mark(tag, now, token, written, floor)
  local higher = floor
  if token > floor and (token > now + AHEAD or floor > now) then
    higher = token
  end
  if higher == floor and now <= written + COVER / 2 then
    return written + COVER
  end
  if type(redis.pcall('HSET', mark_of(tag), 'clock', now, 'floor', higher)) ~= 'number' then
    return 0
  end
  redis.pcall('PEXPIRE', mark_of(tag), UNUSED)
  return now + COVER
end
