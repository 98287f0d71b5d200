-- Add the counts of a server to the current window, and return the servers and the windows that have ended.
--
-- KEYS[1] is the hash of the servers by id, each "<time of its report> <number of its report> <description>". The other
-- keys are hashes of sums by name, one for each window, used in turn. Their field `window` has the number of the window.
-- ARGV: the server's id, the number of this report, the server's description or nothing if it leaves, the number of the
-- window that it read last or -1, the length of a window, the time after which a server is no longer listed, and all counts
-- as names and amounts separated by spaces. A report whose number is not above that of an earlier one adds nothing: it has
-- run before. Returns lines: the number of the current window and the time; then for each server its age and description
-- after an s; then for each window its names and sums after a w, all separated by spaces. What is no
-- entry of a server is removed.

local MAX_SERVERS = 100
local MAX_DESCRIPTION_BYTES = 4096
local MAX_COUNTS = 10000
local MAX_WINDOWS = 12

-- Longer than any window is read. A hash of servers that is not used any more goes too.
local LIFE_SECONDS = 120

local id, number, description, last = ARGV[1], tonumber(ARGV[2]), ARGV[3], tonumber(ARGV[4])
local length, listed, counts = tonumber(ARGV[5]), tonumber(ARGV[6]), ARGV[7]
local servers = KEYS[1]

local now = read_clock()
local window = math.floor(now / length)
local lines = { string.format('%.0f %.0f', window, now) }

local function key_of(some_window)
  return KEYS[2 + some_window % (#KEYS - 1)]
end

local function holds(some_window)
  return redis.call('HGET', key_of(some_window), 'window') == string.format('%.0f', some_window)
end

-- The servers. The clock of another Redis may be behind the one that wrote a time, so both directions count.
local number_before = -1
local others = 0
local stored = redis.call('HGETALL', servers)
for position = 1, #stored, 2 do
  local reported_at, report_number, text = string.match(stored[position + 1], '^(%d+) (%d+) ([^\n]*)$')
  local age = reported_at and math.abs(now - tonumber(reported_at))
  if age and stored[position] == id then
    number_before = tonumber(report_number)
  elseif not age or age > listed or #text > MAX_DESCRIPTION_BYTES then
    redis.call('HDEL', servers, stored[position])
  else
    others = others + 1
    lines[#lines + 1] = string.format('s %.0f %s', age, text)
  end
end
if description == '' then
  redis.call('HDEL', servers, id)
elseif others < MAX_SERVERS then
  redis.call('HSET', servers, id, string.format('%.0f %d %s', now, math.max(number, number_before), description))
  redis.call('EXPIRE', servers, LIFE_SECONDS)
  lines[#lines + 1] = 's 0 ' .. description
end

-- The counts.
local key = key_of(window)
if counts ~= '' and number > number_before then
  if not holds(window) then
    redis.call('DEL', key)
    redis.call('HSET', key, 'window', string.format('%.0f', window))
    redis.call('EXPIRE', key, LIFE_SECONDS)
  end
  local room = MAX_COUNTS + 1 - redis.call('HLEN', key)
  for name, amount in string.gmatch(counts, '(%S+) (%S+)') do
    if room > 0 or redis.call('HEXISTS', key, name) == 1 then
      local sum = redis.pcall('HINCRBY', key, name, amount)
      if sum == tonumber(amount) then
        room = room - 1
      end
    end
  end
end

-- The windows. Nothing is added to one that has ended.
if last >= 0 then
  for ended = math.max(last + 1, window - MAX_WINDOWS), window - 1 do
    local sums = holds(ended) and redis.call('HGETALL', key_of(ended)) or {}
    table.insert(sums, 1, 'w')
    lines[#lines + 1] = table.concat(sums, ' ')
  end
end

return table.concat(lines, '\n')
