-- Gives one order back, once, as release.lua does, with what it uses of the limits of its voucher and of its
-- campaign. Of a window that is over nothing is given back. Also for orders that use nothing.
-- KEYS[1] stock: string, under the name that it has while there are limits; KEYS[2] under the other one
-- KEYS[3] buyers: set of the users who were admitted; KEYS[4] journal: as in release.lua
-- KEYS[5] uses: hash of the voucher, as in admit_limited.lua
-- KEYS[6] uses: of the campaign with the id ARGV[6]; absent where there is none
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] units: as in release.lua
-- ARGV[4] free: '1' frees the slot of the order, and lets the user order again who has no other; '2' does so
-- only where the user's slots are counted: the other order of a moment ago may be given back before this one;
-- '0' leaves the slot to another order that has it
-- ARGV[5] by: as in release.lua; ARGV[6] campaign: id, '' for none
-- Reply 0: was given back before, nothing changed
-- Reply 1: given back now
-- Reply 2: given back now, but no stock is loaded, so no unit was raised
-- Reply 3: the journal is complete and does not hold the order as admitted; nothing changed
-- Reply 4: no key of the sale is there (it was delisted, or Redis lost it); nothing changed, none is made
-- Error BADARG: an argument or the stock is not what it must be
-- Error IDTAKEN: the order id belongs to an order of another user
-- Error CAMPAIGN: the order uses limits of a campaign, whose id follows, and KEYS[6] is not its hash
local order, user, units, free, by, campaign = unpack(ARGV)
local call, find, match, max = redis.call, string.find, string.match, '9223372036854775807'
if #KEYS < 5 or #ARGV ~= 6 or not find(order .. ' ' .. user, '^[1-9]%d* [1-9]%d*$')
  or #order > 19 or #order == 19 and order > max or #user > 19 or #user == 19 and user > max
  or units ~= '0' and (not find(units, '^[1-9]%d?%d?%d?%d?$') or tonumber(units) > 10000)
  or not find(free, '^[012]$') or not find(by, '^[%w_.:-]+$') or #by > 64 then
  return redis.error_reply('BADARG wanted: 5 or 6 keys, order id, user id, units, 0 to 2, by, campaign')
end
local entry, is_complete = unpack(call('HMGET', KEYS[4], order, '#complete'))
if entry and find(entry, '"action":"release"', 1, true) then return 0 end
if entry and not find(entry, '"by":"' .. user .. '"', 1, true) then
  return redis.error_reply('IDTAKEN the order id belongs to an order of another user')
end
local was, at = match(entry or '', '"action":"admit".*"change":(%-?%d+).*"timestamp":(%d+)')
if is_complete and not was then return 3 end
local key = call('EXISTS', KEYS[1]) == 1 and KEYS[1] or KEYS[2]
local stock, change = call('GET', key), tonumber(units)
if not (stock or entry) and call('EXISTS', KEYS[3], KEYS[4]) == 0 then return 4 end
if stock and (#stock > 13 or stock ~= '0' and not find(stock, '^%-?[1-9]%d*$')) then
  return redis.error_reply('BADARG the stock is no number')
end
call('SISMEMBER', KEYS[3], user) -- fails on a key of another type while nothing is written yet
local writes, ends = { {}, {} }, { {}, {} } -- of the voucher, of the campaign
for scope, number, window, value in string.gmatch(match(entry or '', '"uses":"([^"]*)"') or '',
  '(%S-)(%d+),(%d+),(%S*)') do
  local of_campaign = match(scope, '^c(%d+)%.$')
  if of_campaign and (of_campaign ~= campaign or not KEYS[6]) then
    return redis.error_reply('CAMPAIGN ' .. of_campaign .. ' needs its hash as key 6')
  end
  local place, field = of_campaign and 2 or 1, number .. ':' .. value
  local now_at, orders, used = match(call('HGET', KEYS[4 + place], field) or '', '^(%d+):(%d+):(%d+)$')
  if now_at == window then
    local left, left_units = math.max(orders - 1, 0), math.max(used + was, 0)
    local list = left + left_units > 0 and writes[place] or ends[place]
    list[#list + 1] = field
    if list == writes[place] then list[#list + 1] = string.format('%d:%d:%d', now_at, left, left_units) end
  end
end
local slot, slots = tonumber(match(entry or '', '"slot":(%d+)') or 1), call('HGET', KEYS[5], 'u:' .. user)
local rest = slots and free ~= '0' and math.floor(slots / 2 ^ (slot - 1)) % 2 == 1 and slots - 2 ^ (slot - 1)
  or tonumber(slots or 0)
if slots then
  local list = rest > 0 and writes[1] or ends[1]
  list[#list + 1] = 'u:' .. user
  if rest > 0 then list[#list + 1] = string.format('%d', rest) end
end
local time = call('TIME')
-- The first write: HSET is refused when memory is short, SREM and HDEL would not be.
call('HSET', KEYS[4], order, '{"action":"release","from":' .. (stock or 'null') .. ',"to":'
  .. (stock and stock + change or 'null') .. ',"change":' .. (stock and change or 0) .. ',"by":"' .. by
  .. '","timestamp":' .. time[1] .. string.sub('00000' .. time[2], -6, -4) .. (was and ',"admitted":{"user":"'
  .. user .. '","change":' .. was .. ',"timestamp":' .. at .. ',"from":'
  .. (match(entry, '"from":(%-?%d+)') or 'null') .. '}' or '') .. '}')
for place = 1, 2 do
  if #writes[place] > 0 then call('HSET', KEYS[4 + place], unpack(writes[place])) end
  if #ends[place] > 0 then call('HDEL', KEYS[4 + place], unpack(ends[place])) end
end
if rest == 0 and (free == '1' or free == '2' and slots) then call('SREM', KEYS[3], user) end
if stock and change > 0 then call('INCRBY', key, units) end
if not stock and change > 0 then return 2 end
return 1
