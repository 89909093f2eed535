-- A digest, a name, the record as it was and as it will be, and whether its name is free → whether it was so.
if redis.call('HGET', KEYS[1] .. ':keys', ARGV[1]) ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1] .. ':keys', ARGV[1], ARGV[4])
if ARGV[5] ~= '' then redis.call('HDEL', KEYS[1] .. ':names', ARGV[2]) end
return 1
