-- The server's clock, also in µs as text: that takes Redis half as long as a number, which it has to read and print. All of
-- 16 digits, texts compare as numbers do.
local time = redis.call('TIME')
local clock = time[1] .. string.sub('00000', #time[2]) .. time[2]
