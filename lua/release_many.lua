-- Gives many orders of one voucher back, each by the rules of release.lua and each for itself, in turn.
-- KEYS[1] stock, KEYS[2] buyers, KEYS[3] journal: as in release.lua
-- ARGV[1] free, ARGV[2] by: as in release.lua; then of each order, at most 1000: ARGV[3] order id,
-- ARGV[4] user id, ARGV[5] units: as in release.lua; ARGV[6] is the id of the second order, and so on
-- Reply: array, an answer for each order: what release.lua replies, or the text of its error: nothing done
-- Error BADARG: keys, free, by, stock or number of arguments are not what they must be; nothing was done
local call, find, free, by = redis.call, string.find, ARGV[1], ARGV[2]
local stock, id, max = #KEYS == 3 and call('GET', KEYS[1]), '^[1-9]%d*$', '9223372036854775807'
if #KEYS ~= 3 or #ARGV < 5 or #ARGV > 3002 or #ARGV % 3 ~= 2 or free ~= '0' and free ~= '1'
  or not find(by, '^[%w_.:-]+$') or #by > 64
  or stock and (#stock > 13 or stock ~= '0' and not find(stock, '^%-?[1-9]%d*$')) then
  return redis.error_reply('BADARG wanted: 3 keys, 0 or 1, by, 3 arguments an order, a numeric stock')
end
local orders, answers, notes, users, released = {}, {}, {}, {}, {}
for at = 3, #ARGV, 3 do orders[#orders + 1] = ARGV[at] end
local has_keys = stock or call('EXISTS', KEYS[2], KEYS[3]) > 0 -- else nothing is made, as in release.lua
local entries, time = call('HMGET', KEYS[3], '#complete', '#limited', unpack(orders)), call('TIME')
call('SISMEMBER', KEYS[2], by) -- fails on a key of another type while nothing is written yet
local now_ms, left = time[1] .. string.sub('00000' .. time[2], -6, -4), stock
local function release(order, user, units, entry) -- entry: what the journal holds of this order
  if not (find(order, id) and find(user, id)) or #order > 18 and (#order > 19 or order > max)
    or #user > 18 and (#user > 19 or user > max)
    or units ~= '0' and (not find(units, '^[1-9]%d?%d?%d?%d?$') or tonumber(units) > 10000) then
    return 'BADARG wanted: ids, units'
  end
  local was = released[order] or entry and find(entry, '"action":"release"', 1, true)
  if was or entry and not find(entry, '"by":"' .. user .. '"', 1, true) then
    return was and 0 or 'IDTAKEN the order id belongs to an order of another user'
  end
  if entries[2] or entry and find(entry, '"uses":"', 1, true) then
    return 'LIMITED the voucher has limits, or had them then: ask release_limited.lua'
  end
  local admitted, at = string.match(entry or '', '"action":"admit".*"change":(%-?%d+).*"timestamp":(%d+)')
  local unknown = not has_keys and 4 or entries[1] and not admitted and 3 -- as release.lua
  if unknown then return unknown end
  local from, change = left, tonumber(units)
  left = from and string.format('%d', from + change)
  notes[#notes + 1], notes[#notes + 2] = order, '{"action":"release","from":' .. (from or 'null') .. ',"to":'
    .. (left or 'null') .. ',"change":' .. (from and change or 0) .. ',"by":"' .. by
    .. '","timestamp":' .. now_ms .. (admitted and ',"admitted":{"user":"' .. user .. '","change":'
    .. admitted .. ',"timestamp":' .. at .. ',"from":' .. (string.match(entry, '"from":(%-?%d+)') or 'null')
    .. '}' or '') .. '}'
  users[#users + 1], released[order] = user, true
  return (not from and change > 0) and 2 or 1
end
for n = 1, #orders do answers[n] = release(orders[n], ARGV[3 * n + 1], ARGV[3 * n + 2], entries[n + 2]) end
if #notes > 0 then
  call('HSET', KEYS[3], unpack(notes)) -- first: it is refused when memory is short, SREM would not be
  if free == '1' then call('SREM', KEYS[2], unpack(users)) end
  if left ~= stock then call('INCRBY', KEYS[1], string.format('%d', left - stock)) end
end
return answers
