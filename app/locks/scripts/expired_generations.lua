-- Return a line per record: its generation if its deadline has passed, else -1, and the time.

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
  lines[#lines + 1] = string.format('%d %.0f', expired and record.generation or -1, now)
end

return table.concat(lines, '\n')
