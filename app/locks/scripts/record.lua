-- Write the records of locks whose end SQL has moved. A record of a higher generation is not replaced.
--
-- ARGV: generation, duration, bound, the time after which a write is late, queue and version per record. The deadline is the
-- time of this script + duration: a renewal that is delayed between SQL and Redis expires later, never too early. It covers
-- every earlier promise, because the duration does. A record that is written late extends nothing: the lock may have ended
-- since. Returns a line per record: its deadline, or 0 if it was not written.

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
  local deadline = 0
  local in_time = true
    and now < tonumber(ARGV[first + 4]) -- fence: late
  if not in_time then
    record.bound = 0
  end
  if not stored
    or stored.generation <= record.generation -- fence: generation
  then
    write(key, record, now)
    deadline = record.deadline
  end
  lines[#lines + 1] = string.format('%.0f', deadline)
end

redis.call('EXPIRE', index, INDEX_SECONDS)
return table.concat(lines, '\n')
