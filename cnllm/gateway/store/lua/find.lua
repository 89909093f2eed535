-- Keys → for each its digest and content, or nil.
local rows = {}
for index, key in ipairs(ARGV) do
  local member = redis.call('GET', key_name(key))
  local row = member and redis.call('HMGET', item_name(member), 'd', 'b')
  rows[index] = row and row[1] and row or false
end
return rows
