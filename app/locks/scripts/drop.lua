-- Delete records of deliveries that have ended.
--
-- ARGV: a generation per record. A record of a higher generation belongs to a later renewal, and stays. Returns a line per
-- record: 1 if it is gone, else 0.

local lines = {}

for position = 2, #KEYS do
  local key = KEYS[position]
  local record = read(key)
  local unwanted = not record
    or record.generation <= tonumber(ARGV[position - 1]) -- fence: generation
  if unwanted then
    redis.call('DEL', key)
    redis.call('ZREM', index, key)
  end
  lines[#lines + 1] = unwanted and '1' or '0'
end

return table.concat(lines, '\n')
