-- A digest, a name, a record, the name that it had, and whether to replace that → whether the name was free.
local other = redis.call('HGET', KEYS[1] .. ':names', ARGV[2])
if other and (other ~= ARGV[1] or ARGV[5] == '') then return 0 end
if redis.call('HGET', KEYS[1] .. ':names', ARGV[4]) == ARGV[1] then redis.call('HDEL', KEYS[1] .. ':names', ARGV[4]) end
redis.call('HSET', KEYS[1] .. ':keys', ARGV[1], ARGV[3])
redis.call('HSET', KEYS[1] .. ':names', ARGV[2], ARGV[1])
return 1
