-- Answers a line per record: its generation if its deadline has passed, else -1.

local now = read_clock()
local lines = {}

for place = 2, #KEYS do
  local record = read(KEYS[place])
  if not record then
    -- Evicted: nothing is left that could be evidence.
    redis.call('ZREM', index, KEYS[place])
  end
  local expired = record
    and record.deadline <= now -- fence: deadline
  lines[#lines + 1] = expired and tostring(record.generation) or '-1'
end

return table.concat(lines, '\n')
