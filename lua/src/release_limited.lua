-- Releases one order, once, as release.lua does, with what it uses of the limits of its voucher and of its
-- campaign. Uses in a window that is over are not released. Also for orders that use nothing.
-- KEYS[1] stock: string, under its name for a voucher with limits; KEYS[2] stock: under its other name
-- KEYS[3] buyers: set of the users who were admitted; KEYS[4] journal: as in release.lua
-- KEYS[5] uses: hash of the voucher, as in admit_limited.lua
-- KEYS[6] uses: of the campaign with the id ARGV[6]; absent if there is none
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] units: as in release.lua
-- ARGV[4] free: '1' frees the slot of the order, and lets a user without other orders order again; '2' does
-- so only if the user's slots are counted: an order of shortly before may be released before this one; '0'
-- leaves the slot to another order that has it
-- ARGV[5] by: as in release.lua; ARGV[6] campaign: id, '' for none
-- Reply 0: was released before, nothing changed
-- Reply 1: released now
-- Reply 2: released now, but no stock is loaded, so no unit was raised
-- Reply 3: the journal is complete and does not hold the order as admitted; nothing changed
-- Reply 4: no key of the sale exists (it was delisted, or Redis lost it); nothing changed, none is created
-- Error BADARG: an argument or the stock is invalid
-- Error IDTAKEN: the order id belongs to an order of another user
-- Error CAMPAIGN: the order uses limits of a campaign, whose id follows, and KEYS[6] is not its hash
local limited_key, plain_key, buyers, journal, uses = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local campaign_uses = KEYS[6]
local order, user, units, free, by, campaign = unpack(ARGV, 1, 6)
local call, find, match = redis.call, string.find, string.match
local values, first, last = ARGV, 1, 2
--- @include "ids"
if #KEYS < 5 or #ARGV ~= 6 or not are_ids
  or units ~= '0' and (not find(units, '^[1-9]%d?%d?%d?%d?$') or tonumber(units) > 10000)
  or not find(free, '^[012]$') or not find(by, '^[%w_.:-]+$') or #by > 64 then
  return redis.error_reply('BADARG expected: 5 or 6 keys, order id, user id, units, 0 to 2, by, campaign')
end
local entry, is_complete = unpack(call('HMGET', journal, order, '#complete'))
if entry and find(entry, '"action":"release"', 1, true) then return 0 end
--- @include "taken"
if taken then return redis.error_reply(taken) end
--- @include "admitted"
if is_complete and not admitted then return 3 end
local stock_key = call('EXISTS', limited_key) == 1 and limited_key or plain_key
local stock, change = call('GET', stock_key), tonumber(units)
if not (stock or entry) and call('EXISTS', buyers, journal) == 0 then return 4 end
if stock and (#stock > 13 or stock ~= '0' and not find(stock, '^%-?[1-9]%d*$')) then
  return redis.error_reply('BADARG the stock is not a number')
end
call('SISMEMBER', buyers, user) -- fails on a key of another type before anything is written
local counters = { uses, campaign_uses }
local writes, ends = { {}, {} }, { {}, {} } -- of the voucher, of the campaign
local entry_uses = match(entry or '', '"uses":"([^"]*)"') or ''
for scope, number, window, value in string.gmatch(entry_uses, '(%S-)(%d+),(%d+),(%S*)') do
  local of_campaign = match(scope, '^c(%d+)%.$')
  if of_campaign and (of_campaign ~= campaign or not campaign_uses) then
    return redis.error_reply('CAMPAIGN ' .. of_campaign .. ' needs its hash as key 6')
  end
  local place, field = of_campaign and 2 or 1, number .. ':' .. value
  local now_at, orders, used = match(call('HGET', counters[place], field) or '', '^(%d+):(%d+):(%d+)$')
  if now_at == window then
    local left, left_units = math.max(orders - 1, 0), math.max(used + admitted, 0)
    local to_write, to_end = writes[place], ends[place]
    if left + left_units > 0 then
      local becomes = string.format('%d:%d:%d', now_at, left, left_units)
      to_write[#to_write + 1], to_write[#to_write + 2] = field, becomes
    else
      to_end[#to_end + 1] = field
    end
  end
end
local slots = call('HGET', uses, 'u:' .. user)
local rest = tonumber(slots or 0)
if slots then
  local bit = 2 ^ (tonumber(match(entry or '', '"slot":(%d+)') or 1) - 1)
  local to_write, to_end = writes[1], ends[1]
  if free ~= '0' and math.floor(slots / bit) % 2 == 1 then rest = slots - bit end
  if rest > 0 then
    to_write[#to_write + 1], to_write[#to_write + 2] = 'u:' .. user, string.format('%d', rest)
  else
    to_end[#to_end + 1] = 'u:' .. user
  end
end
--- @include "time"
--- @include "release_note"
-- The first write: HSET is refused if memory is short, SREM and HDEL would not be.
call('HSET', journal, order, note)
for place = 1, 2 do
  if #writes[place] > 0 then call('HSET', counters[place], unpack(writes[place])) end
  if #ends[place] > 0 then call('HDEL', counters[place], unpack(ends[place])) end
end
if rest == 0 and (free == '1' or free == '2' and slots) then call('SREM', buyers, user) end
if stock and change > 0 then call('INCRBY', stock_key, units) end
if not stock and change > 0 then return 2 end
return 1
