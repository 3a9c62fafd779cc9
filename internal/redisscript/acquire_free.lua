-- Most often nobody holds the lock, nobody waits for it, and its last hold was released. Then this is all. It comes before the functions
-- of queue.lua, which take their time to be made. The owner's token is the one that it proposes, or else the clock.
local previous, wanted = lock[2], number == '0' and clock or number
if not lock[1] and not lock[3] and #clock == 16 and clock <= due and previous and #previous == 16 and #wanted == 16 and
    previous < wanted and wanted < '9007199254740992' and
    (number == '0' or tonumber(wanted) <= clock + AHEAD) then
  if meta == '' then -- where there is no owner, there is no metadata of one
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', wanted, 'before', previous)
  else
    redis.call('HSET', KEYS[1], 'owner', owner, 'token', wanted, 'before', previous, 'meta', meta)
  end
  return expire(KEYS[1], expires) or clock
end
