-- The beginning of every script: the clock, and the format of a record.
--
-- KEYS[1] is the index of a bucket, the other keys are records. A record is one string,
-- "<generation> <deadline> <bound> <queue> <version>". The index scores it by its deadline. Times are microseconds since
-- 1970, written with %.0f because Lua's default format keeps only 14 digits. Queue and version name the queue of the
-- lock, and the version of the queue at the renewal.

local index = KEYS[1]

-- After its bound a record is of no use, because SQL alone frees the row. During the grace a sweeper that was stopped still
-- finds records that expired meanwhile.
local GRACE = 300000000

-- Longer than the life of any record. Each write postpones the end of the index, so that an idle Redis keeps nothing.
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
