-- Return records whose deadline has passed, earliest deadline first. They stay until they are deleted.
--
-- ARGV[1]: the maximum number. Returns a line per record: its key.

local now = string.format('%.0f', read_clock())
return table.concat(redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, ARGV[1]), '\n')
