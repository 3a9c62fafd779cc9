-- Several calls in one. ARGV: a letter for each, as below; how often each release among them has been sent before; and
-- the arguments of each call. Returns what each does, or nil for one that has an error to say when it is alone: go-redis
-- loses its place in an array with an error that it knows by name.
local ACQUIRE, EXTEND = string.byte('ae', 1, 2)
local calls, replies, releases, k, a = ARGV[1], {}, 0, 0, 2

-- sent is how often the latest release has been sent before.
local function sent()
  local n = 0
  for count in string.gmatch(ARGV[2], '%d+') do
    n = n + 1
    if n == releases then
      return count
    end
  end
end

-- rest is what the free path has not done of a call on the next two keys, with the next arguments.
local function rest(f, lock, ...)
  return pcall(f, {KEYS[k + 1], KEYS[k + 2]}, {...}, lock)
end

for i = 1, #calls do
  local letter = string.byte(calls, i)
  local ran, reply, lock
  if letter == ACQUIRE then
    ran, reply, lock = pcall(acquire_free, KEYS[k + 1], ARGV[a + 1], ARGV[a + 2], ARGV[a + 3], ARGV[a + 4], ARGV[a + 5])
    if ran and not reply then
      ran, reply = rest(acquire, lock, unpack(ARGV, a + 1, a + 5))
    end
    k, a = k + 2, a + 5
  elseif letter == EXTEND then
    ran, reply = pcall(extend, {KEYS[k + 1]}, {ARGV[a + 1], ARGV[a + 2]})
    k, a = k + 1, a + 2
  else
    releases = releases + 1
    ran, reply, lock = pcall(release_free, KEYS[k + 1], ARGV[a + 1])
    if ran and not reply then
      ran, reply = rest(release, lock, ARGV[a + 1], ARGV[a + 2], sent())
    end
    k, a = k + 2, a + 2
  end
  replies[i] = ran and not (type(reply) == 'table' and reply.err) and reply
end
return replies
