-- Name records whose deadline has passed, longest ago first. They stay until they are dropped.
--
-- ARGV[1]: how many at most. Answers a line per record: its key.

local now = string.format('%.0f', read_clock())
return table.concat(redis.call('ZRANGEBYSCORE', index, '-inf', now, 'LIMIT', 0, ARGV[1]), '\n')
