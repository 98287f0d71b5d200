-- Prolong locks to now + duration, each while its record lives, inside its bound, and for the queue as it is now.
--
-- A record of another queue, or of an earlier version of the queue, prolongs nothing: the lock may have been taken
-- since, and only SQL knows. ARGV: duration, queue and version per record. Answers a line per record: now, the new end
-- of the lock or 0, and the generation of an expired record or -1.

local now = read_clock()
local lines = {}

for place = 2, #KEYS do
  local key = KEYS[place]
  local record = read(key)
  local first = 3 * (place - 2)
  local wanted = now + tonumber(ARGV[first + 1])
  local queue, version = tonumber(ARGV[first + 2]), tonumber(ARGV[first + 3])
  local granted, evidence = 0, -1
  if record
    and record.deadline <= now -- fence: deadline
  then
    evidence = record.generation
  elseif record
    and wanted <= record.bound -- fence: bound
    and record.queue == queue -- fence: queue
    and record.version == version -- fence: version
  then
    granted = wanted
    -- An earlier, longer promise may still be believed by a holder who missed this answer.
    if true
      and wanted > record.deadline -- fence: longer
    then
      record.deadline = wanted
    end
    write(key, record, now)
  end
  lines[#lines + 1] = string.format('%.0f %.0f %d', now, granted, evidence)
end

return table.concat(lines, '\n')
