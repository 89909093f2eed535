-- A digest whose account is of an earlier version, which kept grants as bytes in it: unpack them.
local name = KEYS[1] .. ':use:' .. ARGV[1]
local account = cmsgpack.unpack(redis.call('GET', name))
for _, lease in pairs(account.leases) do
  if type(lease.grant) == 'string' then lease.grant = cmsgpack.unpack(lease.grant) end
end
redis.call('SET', name, cmsgpack.pack(account))
