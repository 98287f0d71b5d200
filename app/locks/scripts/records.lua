-- What every script begins with: the clock, and how a record is kept.
--
-- KEYS[1] is the index of a bucket, the keys after it are records. A record is one string,
-- "<generation> <deadline> <bound> <queue> <version>", and stands in the index under its deadline. Times are
-- microseconds since 1970, written with %.0f because Lua's own way keeps only 14 digits. Queue and version say which
-- queue's lock it is, and which settings of the queue the renewal went by.

local index = KEYS[1]

-- After its bound no evidence is of use, because SQL frees the row by itself. The grace lets a sweeper see
-- what expired while it was away.
local GRACE = 300000000

-- Longer than any record lives; each write puts the end of the index off, so that nothing stays when all is idle.
local INDEX_SECONDS = 86400

local function read_clock()
  local time = redis.call('TIME')
  return time[1] * 1000000 + time[2]
end

local function read(key)
  local value = redis.call('GET', key)
  if not value then
    return nil
  end
  local generation, deadline, bound, queue, version = string.match(value, '^(%d+) (%d+) (%d+) (%d+) (%d+)$')
  return {
    generation = tonumber(generation),
    deadline = tonumber(deadline),
    bound = tonumber(bound),
    queue = tonumber(queue),
    version = tonumber(version),
  }
end

local function write(key, record, now)
  local life = math.max(record.deadline, record.bound) - now + GRACE
  local times = string.format('%d %.0f %.0f', record.generation, record.deadline, record.bound)
  local value = string.format('%s %d %d', times, record.queue, record.version)
  redis.call('SET', key, value, 'PX', string.format('%.0f', math.ceil(life / 1000)))
  redis.call('ZADD', index, string.format('%.0f', record.deadline), key)
end
