-- Forget records of deliveries that have ended.
--
-- ARGV: a generation per record: a record of a higher one is that of a renewal since, and stays. Answers a line per
-- record: 1 if it is gone, else 0.

local lines = {}

for place = 2, #KEYS do
  local key = KEYS[place]
  local record = read(key)
  local unwanted = not record
    or record.generation <= tonumber(ARGV[place - 1]) -- fence: generation
  if unwanted then
    redis.call('DEL', key)
    redis.call('ZREM', index, key)
  end
  lines[#lines + 1] = unwanted and '1' or '0'
end

return table.concat(lines, '\n')
