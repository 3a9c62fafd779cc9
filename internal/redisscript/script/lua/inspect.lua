-- Reads, and writes nothing. Returns what inspectReply says: texts that are empty, and a time that
-- is not above 0, where there is nothing. A user who may hold locks and not wait for them has no
-- right to see the queue, and sees the rest.
local last = unpack(ARGV) -- how far into the queue to look, as ZRANGE counts
-- uses: KEEP, QUEUE, READERS, is_shared
local lock = redis.call('HMGET', KEYS[1], 'owner', 'meta', 'token', 'writer')
local owner, meta, token = lock[1] or '', lock[2] or '', lock[3] or ''
local left = redis.call('PTTL', KEYS[1]) - KEEP
local waiters = redis.pcall('ZRANGE', QUEUE, 0, last)
if waiters.err then
  waiters = {}
end
local readers = {} -- what is claimed begins with '>', as where there is one owner
if left > 0 and last ~= '0' and is_shared(owner) then
  local all, time = redis.pcall('ZRANGE', READERS, 0, -1, 'WITHSCORES'), redis.call('TIME')
  for i = 1, #all, 2 do
    if tonumber(all[i + 1]) > time[1] * 1000 + time[2] / 1000 then
      readers[#readers + 1] = all[i] == lock[4] and meta ~= '' and all[i] .. '\n' .. meta or all[i]
    end
  end
end
-- A token is the time of its grant in µs, unless the clock has gone back since an earlier one.
local now, age = redis.pcall('TIME'), -1
if not now.err and token ~= '' then
  age = now[1] * 1000000 + now[2] - (tonumber(token) or 0)
end
return {owner, meta, left, token, age, waiters, readers}
