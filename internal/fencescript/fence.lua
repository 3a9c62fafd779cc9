-- Behind the application's own script, which is the function write. KEYS[1] is the key of the
-- newest token, ARGV[1] the token of the write; what remains is the script's.
local token, newest = ARGV[1], redis.pcall('GET', KEYS[1])
local failed = type(newest) == 'table' and newest.err
if failed and not failed:find('^WRONGTYPE') then
  return newest
end
if newest then
  if failed or not newest:find('^[1-9]%d*$') then
    return redis.error_reply('NOTOKEN in that key')
  end
  -- As text, for the numbers of Lua have 53 bits.
  if #token < #newest or #token == #newest and token < newest then
    return redis.error_reply('STALETOKEN ' .. newest)
  end
end
if token ~= newest then
  redis.call('SET', KEYS[1], token)
end
table.remove(KEYS, 1)
table.remove(ARGV, 1)
return write(KEYS, ARGV)
