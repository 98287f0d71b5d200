-- Write the records of locks that SQL has prolonged. A record of a higher generation is not replaced.
--
-- ARGV: generation, duration, bound, end of the promise, queue and version per record. The deadline is the time of this
-- script + duration: a renewal that is delayed between SQL and Redis expires later, never too early. A renewal that is
-- delayed past the end of its promise is not written: the row may have been freed, and its token must stay dead.
-- Returns a line per record: 1 if it was written, else 0.

local now = read_clock()
local lines = {}

for position = 2, #KEYS do
  local key = KEYS[position]
  local first = 6 * (position - 2)
  local record = {
    generation = tonumber(ARGV[first + 1]),
    deadline = now + tonumber(ARGV[first + 2]),
    bound = tonumber(ARGV[first + 3]),
    queue = tonumber(ARGV[first + 5]),
    version = tonumber(ARGV[first + 6]),
  }
  local stored = read(key)
  local wanted = true
    and now < tonumber(ARGV[first + 4]) -- fence: promise
    and (not stored or stored.generation <= record.generation) -- fence: generation
  if wanted then
    -- The previous promise may end later, and SQL still covers it.
    if stored
      and stored.deadline > record.deadline -- fence: longer
    then
      record.deadline = stored.deadline
    end
    write(key, record, now)
  end
  lines[#lines + 1] = wanted and '1' or '0'
end

redis.call('EXPIRE', index, INDEX_SECONDS)
return table.concat(lines, '\n')
