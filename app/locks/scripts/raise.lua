-- Raise the highest values that the processes of a broker have seen.
--
-- KEYS[1] is a hash of whole numbers by name. ARGV: the seconds for which it is kept from now on, then names and values.
-- Returns all names and their values. Digits are compared as text, because a number of Lua cannot hold all values.

local function is_higher(one, other)
  return #one > #other or (#one == #other and one > other)
end

for index = 2, #ARGV, 2 do
  local known = redis.call('HGET', KEYS[1], ARGV[index])
  if not known or is_higher(ARGV[index + 1], known) then
    redis.call('HSET', KEYS[1], ARGV[index], ARGV[index + 1])
  end
end
redis.call('EXPIRE', KEYS[1], ARGV[1])

return table.concat(redis.call('HGETALL', KEYS[1]), ' ')
