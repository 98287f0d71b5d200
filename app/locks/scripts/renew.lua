-- Prolong locks to now + duration, each while its record lives and inside its bound.
--
-- ARGV: a duration per record. Answers a line per record: now, the new end of the lock or 0, and the
-- generation of an expired record or -1.

local now = read_clock()
local lines = {}

for place = 2, #KEYS do
  local key = KEYS[place]
  local record = read(key)
  local wanted = now + tonumber(ARGV[place - 1])
  local granted, evidence = 0, -1
  if record and record.deadline <= now then
    evidence = record.generation
  elseif record and wanted <= record.bound then
    granted = wanted
    -- An earlier, longer promise may still be believed by a holder who missed this answer.
    record.deadline = math.max(record.deadline, wanted)
    write(key, record, now)
  end
  lines[#lines + 1] = string.format('%.0f %.0f %d', now, granted, evidence)
end

return table.concat(lines, '\n')
