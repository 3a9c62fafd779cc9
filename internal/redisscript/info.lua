local section = unpack(ARGV) -- see script.go
-- Returns the clock, and that section of INFO, or nothing where the user has no right to it.
local text = redis.pcall('INFO', section)
if type(text) ~= 'string' then
  text = ''
end
return {clock, text}
