-- A digest, an account as it was and as it will be → 1 if it was so, else seconds, microseconds, account, record.
local name = KEYS[1] .. ':use:' .. ARGV[1]
local account = redis.call('GET', name) or ''
if ARGV[3] and account == ARGV[2] then
  redis.call('SET', name, ARGV[3])
  return 1
end
local clock = redis.call('TIME')
return {clock[1], clock[2], account, redis.call('HGET', KEYS[1] .. ':keys', ARGV[1])}
