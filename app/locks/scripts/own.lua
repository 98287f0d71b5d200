-- Take a prefix for a broker, or keep it for the one that has it.
--
-- KEYS[1] names who has it. ARGV: the broker's identity, and for how many seconds it has the prefix from now on. Answers
-- the identity of the broker that has it.

local owner = redis.call('GET', KEYS[1])
if not owner
  or owner == ARGV[1] -- fence: owner
then
  owner = ARGV[1]
  redis.call('SET', KEYS[1], owner, 'EX', ARGV[2])
end

return owner
