"""The Lua scripts of the Redis store.

An item is a hash `PREFIX:i:ID` (o owner, d digest, b content, k its keys). `PREFIX:k:KEY` names an item as
`ID:SIZE:OWNER`; so do the sorted sets `PREFIX:all` and `PREFIX:o:OWNER`, whose scores are the server's microseconds;
they rise even where its clock is set back. `PREFIX:u` holds the bytes of each owner, and of all. Everything expires: an
item an hour after its keys, so that a write can take it out of the sums before, and the rest after two lifetimes
without a write.
"""

from __future__ import annotations

__all__ = ["DELETE", "FIND", "KEEP"]

_COMMON = """
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
"""

FIND = (
    _COMMON
    + """
local rows = {}
for index, key in ipairs(ARGV) do
  local member = redis.call('GET', key_name(key))
  local row = member and redis.call('HMGET', item_name(member), 'd', 'b')
  rows[index] = row and row[1] and row or false
end
return rows
"""
)
"""Keys → for each its digest and content, or nil."""

DELETE = (
    _COMMON
    + """
local member = redis.call('GET', key_name(ARGV[1]))
if not member then return 0 end
drop(member)
return 1
"""
)
"""A key → whether there was an item."""

KEEP = (
    _COMMON
    + """
local owner, digest, blob, id, lifetime = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local most, most_bytes = tonumber(ARGV[6]), tonumber(ARGV[7])
local own_most, own_bytes = tonumber(ARGV[8]), tonumber(ARGV[9])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local forget = 2 * lifetime + 3600000
-- a clock that was set back makes no item older than those before it: it would be evicted at once
local newest = redis.call('ZREVRANGE', all, 0, 0, 'WITHSCORES')[2]
local score = string.format('%.0f', math.max(now, tonumber(newest or 0) + 1))

local function add(id, digest, blob, keys)
  local size = #blob + 128 + 64 * #keys
  local member = id .. ':' .. size .. ':' .. owner
  local item = item_name(member)
  redis.call('HSET', item, 'o', owner, 'd', digest, 'b', blob, 'k', table.concat(keys, ' '))
  redis.call('PEXPIRE', item, lifetime + 3600000)
  for _, key in ipairs(keys) do redis.call('SET', key_name(key), member, 'PX', lifetime) end
  redis.call('ZADD', all, score, member)
  redis.call('ZADD', owner_name(owner), score, member)
  redis.call('HINCRBY', usage, 'all', size)
  redis.call('HINCRBY', usage, owner, size)
end

local function unlink(key, member)
  local rest = {}
  for other in string.gmatch(redis.call('HGET', item_name(member), 'k') or '', '%x+') do
    if other ~= key then rest[#rest + 1] = other end
  end
  redis.call('DEL', key_name(key))
  if #rest == 0 then drop(member) else redis.call('HSET', item_name(member), 'k', table.concat(rest, ' ')) end
end

local function evict(set, name, count, bytes)
  while redis.call('ZCARD', set) > count or tonumber(redis.call('HGET', usage, name) or 0) > bytes do
    local oldest = redis.call('ZRANGE', set, 0, 0)[1]
    if not oldest then
      redis.call('HDEL', usage, name)  -- the server evicted the set, and not the sum
      break
    end
    drop(oldest)
  end
end

local clear = {}
for index = 10, #ARGV do
  local key = ARGV[index]
  local member = redis.call('GET', key_name(key))
  local earlier = member and redis.call('HGET', item_name(member), 'd')
  if member then unlink(key, member) end
  if earlier and earlier ~= digest then
    add(id .. string.format('%04x', index), '', '', {key})
  else
    clear[#clear + 1] = key
  end
end
if #clear > 0 then add(id, digest, blob, clear) end
evict(owner_name(owner), owner, own_most, own_bytes)
evict(all, 'all', most, most_bytes)
local old = redis.call('ZRANGEBYSCORE', all, '-inf', '(' .. string.format('%.0f', now - lifetime * 1000), 'LIMIT', 0, 8)
for _, member in ipairs(old) do drop(member) end
for _, name in ipairs({all, usage, owner_name(owner)}) do redis.call('PEXPIRE', name, forget) end
return #clear > 0 and 1 or 0
"""
)
"""Owner, digest, content, id, milliseconds to live, four bounds, keys → whether the item is kept."""
