-- Write the records of locks that SQL has prolonged, each unless a higher generation is there.
--
-- ARGV: generation, duration, bound, end of the promise, queue and version per record. The deadline is the time of this
-- script + duration: a renewal that was held up between SQL and here leaves evidence later, never too early. One that
-- was held up for longer than its promise lasts leaves nothing: the row may have been freed, and its token must stay
-- dead. Answers a line per record: 1 if it was written, else 0.

local now = read_clock()
local lines = {}

for place = 2, #KEYS do
  local key = KEYS[place]
  local first = 6 * (place - 2)
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
    -- The promise before may reach further, and SQL still covers it.
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
