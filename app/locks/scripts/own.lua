-- Take a free prefix for a broker, or extend its ownership.
--
-- KEYS[1] holds the identity of the owner. ARGV: the broker's identity, and the seconds for which it has the prefix from
-- now on. Returns the identity of the owner.

local owner = redis.call('GET', KEYS[1])
if not owner
  or owner == ARGV[1] -- fence: owner
then
  owner = ARGV[1]
  redis.call('SET', KEYS[1], owner, 'EX', ARGV[2])
end

return owner
