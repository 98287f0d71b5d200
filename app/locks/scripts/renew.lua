-- Prolong locks to now + duration. Each needs a live record of the same queue and version, and stays inside its bound.
--
-- A record of another queue, or of an earlier version of the queue, prolongs nothing: the lock may have been revoked
-- since, and only SQL knows. ARGV: duration, queue and version per record. Returns a line per record: now, the new end
-- of the lock or 0, and the generation of an expired record or -1.

local now = read_clock()
local lines = {}

for position = 2, #KEYS do
  local key = KEYS[position]
  local record = read(key)
  local first = 3 * (position - 2)
  local wanted = now + tonumber(ARGV[first + 1])
  local queue, version = tonumber(ARGV[first + 2]), tonumber(ARGV[first + 3])
  local granted, expired_generation = 0, -1
  if record
    and record.deadline <= now -- fence: deadline
  then
    expired_generation = record.generation
  elseif record
    and wanted <= record.bound -- fence: bound
    and record.queue == queue -- fence: queue
    and record.version == version -- fence: version
  then
    granted = wanted
    -- A holder that misses this answer may still rely on an earlier, longer promise.
    if true
      and wanted > record.deadline -- fence: longer
    then
      record.deadline = wanted
    end
    write(key, record, now)
  end
  lines[#lines + 1] = string.format('%.0f %.0f %d', now, granted, expired_generation)
end

return table.concat(lines, '\n')
