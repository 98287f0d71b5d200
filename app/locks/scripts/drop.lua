-- Forget records of deliveries that have ended. Answers a line per record: 1 if there was one, else 0.

local lines = {}

for place = 2, #KEYS do
  lines[#lines + 1] = tostring(redis.call('DEL', KEYS[place]))
  redis.call('ZREM', index, KEYS[place])
end

return table.concat(lines, '\n')
