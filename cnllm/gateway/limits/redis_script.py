"""The Lua scripts of the book on a Redis server: `account.py` and `window.py` once more, with the server's clock.

Keys are in the hash `PREFIX:keys` (digest to record, MessagePack), the names in use in `PREFIX:names`, and the use of a
key in `PREFIX:use:DIGEST` (MessagePack). Nothing expires. Numbers are exact up to 2**53.
"""

from __future__ import annotations

from cnllm.gateway.limits.account import HEADROOM_SHARE
from cnllm.gateway.limits.window import LIFE, SLOT

__all__ = ["UPDATE", "USE"]

_COMMON = (
    f"local SLOT, LIFE, SHARE = {SLOT}, {LIFE}, {HEADROOM_SHARE}"
    + """
local name = KEYS[1] .. ':use:' .. ARGV[1]
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local blob = redis.call('GET', name)
local account = blob and cmsgpack.unpack(blob)
  or {requests = {}, tokens = {}, spent = {}, leases = {}, calls = 0, used = 0, unpriced = 0, last = 0}

local function plus(amounts, currency, units) amounts[currency] = (amounts[currency] or 0) + units end

local function expire()
  for worker, lease in pairs(account.leases) do
    if lease.expires <= now then
      for currency, units in pairs(lease.open) do
        if units > 0 then plus(account.spent, currency, units) end
      end
      account.leases[worker] = nil
    end
  end
end
"""
)

UPDATE = (
    _COMMON
    + """
local worker, number, life, requests, tokens, money, charges, closed, request_counts, token_counts, calls, used,
  unpriced = unpack(cmsgpack.unpack(ARGV[2]))
local stored = redis.call('HGET', KEYS[1] .. ':keys', ARGV[1])
if not stored then return cmsgpack.pack({'revoked', now, 0, 0, {}, {}, {}}) end
local record = cmsgpack.unpack(stored)

local function trim(window)
  local oldest, rest = math.floor(now / SLOT) - LIFE, {}
  for index = 1, #window, 2 do
    if window[index] > oldest then
      rest[#rest + 1] = window[index]
      rest[#rest + 1] = window[index + 1]
    end
  end
  return rest
end

local function total(window)
  local sum = 0
  for index = 2, #window, 2 do sum = sum + window[index] end
  return sum
end

local function add(window, slot, count)
  for index = #window - 1, 1, -2 do
    if window[index] == slot then
      window[index + 1] = math.max(0, window[index + 1] + count)
      return
    end
    if window[index] < slot then break end
  end
  if count > 0 and (#window == 0 or window[#window - 1] < slot) then
    window[#window + 1] = slot
    window[#window + 1] = count
  end
end

local function correct(window, corrections)
  for index = 1, #corrections, 2 do
    local slot = corrections[index]
    add(window, slot == 0 and math.floor(now / SLOT) or slot, corrections[index + 1])
  end
end

local function take(window, slot, limit, wish)
  local free = math.max(0, limit - total(window))
  local granted = math.min(wish[1], free) + math.min(wish[2], math.floor(limit / SHARE), math.max(0, free - wish[1]))
  add(window, slot, granted)
  return granted
end

if now < account.last then now = account.last end
account.last = now
expire()
local lease = account.leases[worker]
if not lease then
  if number ~= 1 then
    redis.call('SET', name, cmsgpack.pack(account))
    return cmsgpack.pack({'lost', now, 0, 0, {}, {}, {}})
  end
  lease = {number = 0, open = {}}
  account.leases[worker] = lease
elseif lease.number == number then
  return lease.grant
end

for currency, units in pairs(charges) do plus(account.spent, currency, units) end
for currency, units in pairs(closed) do lease.open[currency] = math.max(0, (lease.open[currency] or 0) - units) end
account.requests, account.tokens = trim(account.requests), trim(account.tokens)
correct(account.requests, request_counts)
correct(account.tokens, token_counts)
account.calls, account.used = account.calls + calls, account.used + used
account.unpriced = account.unpriced + unpriced

local grant = {'ok', now, 0, 0, {}, {}, {}}
if record.revoked then
  grant[1] = 'revoked'
else
  local slot = math.floor(now / SLOT)
  if record.rpm then
    grant[3] = take(account.requests, slot, record.rpm, requests)
    if grant[3] < requests[1] then grant[6] = account.requests end
  end
  if record.tpm then
    grant[4] = take(account.tokens, slot, record.tpm, tokens)
    if grant[4] < tokens[1] then grant[7] = account.tokens end
  end
  for currency, wish in pairs(money) do
    local unspent = (record.budgets[currency] or 0) - (account.spent[currency] or 0)
    local open = 0
    for _, other in pairs(account.leases) do open = open + (other.open[currency] or 0) end
    local free = math.max(0, unspent - open)
    local units = math.min(wish[1], free)
    units = units + math.min(wish[2], math.floor((free - units) / SHARE))
    plus(lease.open, currency, units)
    grant[5][#grant[5] + 1] = {currency, units, unspent}
  end
end
lease.number, lease.expires, lease.grant = number, now + life, cmsgpack.pack(grant)
redis.call('SET', name, cmsgpack.pack(account))
return lease.grant
"""
)
"""A key's digest and an operation → the grant."""

USE = (
    _COMMON
    + """
expire()
local function flat(amounts)
  local list = {}
  for currency, units in pairs(amounts) do list[#list + 1] = {currency, units} end
  return list
end
local open = {}
for _, lease in pairs(account.leases) do
  for currency, units in pairs(lease.open) do plus(open, currency, units) end
end
return cmsgpack.pack({flat(account.spent), flat(open), account.calls, account.used, account.unpriced, account.last})
"""
)
"""A key's digest → money spent, money on lease, replies, tokens, replies of unknown cost, time of the last use."""
