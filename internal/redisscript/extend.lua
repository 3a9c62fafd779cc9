-- KEYS: locks. ARGV: TTL + KEEP in ms, and the owner of each. Returns 1, or 0 if the hold has ended; of several locks
-- an array: 1 if any of them is extended, and then, for each, 1, 0, or -1 if it has an error to say when it is alone.
local function extend(key, owner)
  local found = redis.pcall('HGET', key, 'owner')
  if type(found) == 'table' then -- an error, of this key alone
    return found
  elseif found ~= owner or redis.call('PTTL', key) <= KEEP then
    return 0
  end
  return redis.call('PEXPIRE', key, ARGV[1])
end

if #KEYS == 1 then
  return extend(KEYS[1], ARGV[2])
end
local replies = {0}
for i, key in ipairs(KEYS) do
  local reply = extend(key, ARGV[i + 1])
  if reply == 1 then
    replies[1] = 1
  end
  replies[i + 1] = type(reply) == 'table' and -1 or reply
end
return replies
