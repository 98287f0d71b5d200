-- Keep the report of a consumer, or remove it.
--
-- ARGV: the name of the consumer among all reports, as in `consumers.lua`; how long the report is valid, 0 to remove it; the
-- state; the report; how many reports a queue may have, and how many all queues. Returns ok, or full if the consumer is not
-- listed and a limit is reached.

local name, ttl, state, report = ARGV[1], tonumber(ARGV[2]), ARGV[3], ARGV[4]
local most_of_queue, most_of_all = tonumber(ARGV[5]), tonumber(ARGV[6])

local function is_full()
  if redis.call('HLEN', reports) >= most_of_all then
    return true
  end
  local queue, count = string.match(name, '^%d+ '), 0
  for _, other in ipairs(redis.call('HKEYS', reports)) do
    if string.sub(other, 1, #queue) == queue then
      count = count + 1
    end
  end
  return count >= most_of_queue
end

if ttl == 0 then
  redis.call('HDEL', reports, name)
  redis.call('ZREM', ends, name)
  return 'ok'
end

local stored = redis.call('HGET', reports, name)
local first, since, state_before = string.match(stored or '', '^(%d+) (%d+) %d+ (%l+) ')
local time = string.format('%.0f', now)
if not stored and is_full() then
  return 'full'
end
if state ~= state_before then
  since = time
end
redis.call('HSET', reports, name, table.concat({ first or time, since, time, state, report }, ' '))
redis.call('ZADD', ends, string.format('%.0f', now + ttl), name)
redis.call('EXPIRE', reports, LIFE_SECONDS)
redis.call('EXPIRE', ends, LIFE_SECONDS)
return 'ok'
