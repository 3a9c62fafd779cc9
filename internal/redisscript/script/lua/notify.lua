-- Notes a process that holds the lock and asks to be told when somebody begins to wait. Returns 1
-- if somebody waits already, and else 0.
local owner, process = unpack(ARGV) -- process: in front of its waiters' owners; '': it is not subscribed
-- uses: KEEP, QUEUE, READERS, SHARES
local lock = redis.call('HMGET', KEYS[1], 'owner', 'queue')
local holds = lock[1] == owner or lock[1] == SHARES and redis.call('ZSCORE', READERS, owner)
if not holds or redis.call('PTTL', KEYS[1]) <= KEEP then
  return 0
elseif redis.call('ZCARD', QUEUE) > 0 then
  return 1
end
local told = lock[2] and lock[2] ~= '1' and lock[2] or ''
if process ~= '' and not string.find(told, process, 1, true) then
  if #told > 1000 then
    told = '' -- they look by themselves
  end
  redis.call('HSET', KEYS[1], 'queue', told .. process)
end
return 0
