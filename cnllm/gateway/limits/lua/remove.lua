-- The digest of a team, which is its name → whether there was one.
redis.call('HDEL', KEYS[1] .. ':names', ARGV[1])
redis.call('DEL', KEYS[1] .. ':use:' .. ARGV[1])
return redis.call('HDEL', KEYS[1] .. ':keys', ARGV[1])
