-- ARGV: a section of INFO. Returns that, or nothing where the user has no right to it.
local info = redis.pcall('INFO', ARGV[1])
return type(info) == 'string' and info or ''
