local section = unpack(ARGV) -- see script.go
-- Returns that section of INFO, or nothing where the user has no right to it.
local info = redis.pcall('INFO', section)
return type(info) == 'string' and info or ''
