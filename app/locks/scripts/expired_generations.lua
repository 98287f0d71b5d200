-- Return a line per record: its generation if its deadline has passed, else -1.

local now = read_clock()
local lines = {}

for position = 2, #KEYS do
  local record = read(KEYS[position])
  if not record then
    -- Redis has evicted the record, so nothing proves that it has expired.
    redis.call('ZREM', index, KEYS[position])
  end
  local expired = record
    and record.deadline <= now -- fence: deadline
  lines[#lines + 1] = expired and tostring(record.generation) or '-1'
end

return table.concat(lines, '\n')
