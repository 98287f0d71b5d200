-- The first part of the scripts about consumers: drops reports that are no longer valid.
--
-- KEYS[1] is the hash of the reports by "<queue> <consumer> <principal>", each "<first> <since> <last> <state> <report>":
-- when the consumer reported first, since when it has its state, when it reported last, its state, and JSON in one line.
-- KEYS[2] is the sorted set of the same names by the time when each report ends.

-- The longest time for which a report is valid. One that ends later was written before the clock was set back, and is dropped too.
local MAX_TTL = 300000000

-- Longer than any report is valid, so that Redis keeps nothing of consumers that are gone.
local LIFE_SECONDS = 600

local reports, ends = KEYS[1], KEYS[2]
local now = read_clock()

-- Redis has evicted one of the two. A report without an end would stay for ever. Consumers that still run report again.
if redis.call('HLEN', reports) ~= redis.call('ZCARD', ends) then
  redis.call('DEL', reports, ends)
end

local function drop_between(low, high)
  for _, name in ipairs(redis.call('ZRANGEBYSCORE', ends, low, high)) do
    redis.call('HDEL', reports, name)
    redis.call('ZREM', ends, name)
  end
end

drop_between('-inf', string.format('%.0f', now))
drop_between(string.format('(%.0f', now + MAX_TTL), '+inf')
