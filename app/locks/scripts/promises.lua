-- Return a line per record: its generation and the time until its deadline, empty if it does not exist. Changes nothing.

local now = read_clock()
local lines = {}

for position = 2, #KEYS do
  local record = read(KEYS[position])
  lines[#lines + 1] = record and string.format('%d %.0f', record.generation, record.deadline - now) or ''
end

return table.concat(lines, '\n')
