-- Several calls in one. ARGV: a letter for each, as below; how often each release among them has been sent before; and
-- the arguments of each call. Returns what each does, or nil for one that has an error to say when it is alone: go-redis
-- loses its place in an array with an error that it knows by name.
local functions = {a = acquire, e = extend, r = release}
local keys, args = {a = 2, e = 1, r = 2}, {a = 5, e = 2, r = 2}
local replies, sent, k, a = {}, string.gmatch(ARGV[2], '%d+'), 0, 2
for letter in string.gmatch(ARGV[1], '%a') do
  local KEYS, own = {unpack(KEYS, k + 1, k + keys[letter])}, {unpack(ARGV, a + 1, a + args[letter])}
  k, a = k + #KEYS, a + #own
  if letter == 'r' then
    own[3] = sent()
  end
  local ran, reply = pcall(functions[letter], KEYS, own)
  replies[#replies + 1] = ran and not (type(reply) == 'table' and reply.err) and reply
end
return replies
