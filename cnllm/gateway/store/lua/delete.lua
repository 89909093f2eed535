-- A key → whether there was an item.
local member = redis.call('GET', key_name(ARGV[1]))
if not member then return 0 end
drop(member)
return 1
