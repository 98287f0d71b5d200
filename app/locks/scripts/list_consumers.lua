-- Return the reports of a queue, or of all queues, each in a line after the id of its queue.
--
-- ARGV: the id of the queue, or nothing for all; the state that the reports must have, or nothing for any.

local wanted_queue, wanted_state = ARGV[1], ARGV[2]
local lines = {}

local stored = redis.call('HGETALL', reports)
for position = 1, #stored, 2 do
  local queue = string.match(stored[position], '^(%d+) ')
  local state = string.match(stored[position + 1], '^%d+ %d+ %d+ (%l+) ')
  local is_of_queue = wanted_queue == '' or queue == wanted_queue
  if queue and state and is_of_queue and (wanted_state == '' or state == wanted_state) then
    lines[#lines + 1] = queue .. ' ' .. stored[position + 1]
  end
end

return table.concat(lines, '\n')
