-- Returns the clock in µs, and a section of INFO, or nothing where the user has no right to it.
local section = unpack(ARGV)
local time = redis.call('TIME')
local clock, text = time[1] .. string.sub('00000', #time[2]) .. time[2], redis.pcall('INFO', section)
if type(text) ~= 'string' then
  text = ''
end
return {clock, text}
