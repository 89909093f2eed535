-- What the scripts of the store begin with: the names of its keys, and how an item is dropped.
local prefix = KEYS[1]
local all, usage = prefix .. ':all', prefix .. ':u'

local function key_name(key) return prefix .. ':k:' .. key end
local function owner_name(owner) return prefix .. ':o:' .. owner end
local function item_name(member) return prefix .. ':i:' .. string.match(member, '^%x+') end

local function drop(member)
  local size, owner = string.match(member, ':(%d+):(%x+)$')
  local keys = redis.call('HGET', item_name(member), 'k')
  for key in string.gmatch(keys or '', '%x+') do
    if redis.call('GET', key_name(key)) == member then redis.call('DEL', key_name(key)) end
  end
  redis.call('DEL', item_name(member))
  if redis.call('ZREM', all, member) == 1 then redis.call('HINCRBY', usage, 'all', '-' .. size) end
  if redis.call('ZREM', owner_name(owner), member) == 1 then
    if redis.call('HINCRBY', usage, owner, '-' .. size) <= 0 then redis.call('HDEL', usage, owner) end
  end
end
