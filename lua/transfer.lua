-- Moves units from the stock of one sale to that of another, in steps like those of adjust_stock.lua. The
-- first step writes both notes and takes the units, the last step writes both notes and adds them. Each step
-- changes both sales or neither. Units added to a lost stock have no effect: the stock is rebuilt from
-- MySQL, which has the units by then. A refusal or an error leaves no trace.
-- KEYS[1] stock, KEYS[2] voucher, KEYS[3] journal, KEYS[4] stock: of the giving sale, as in adjust_stock.lua
-- KEYS[5] stock, KEYS[6] voucher, KEYS[7] journal, KEYS[8] stock: of the sale that gets
-- ARGV[1] expected, ARGV[2] note, ARGV[3] units: of the sale that gives, as in adjust_stock.lua
-- ARGV[4] expected, ARGV[5] note, ARGV[6] units: of the sale that gets
-- ARGV[7] id of the transfer, ARGV[8] by: each 1 .. 64 letters, digits and _.:-
-- Reply 0: done
-- Reply 1: was done before, nothing changed: the vouchers have these very notes
-- Reply 2: refused, a present note is not the expected one
-- Reply 3: refused, units are to be taken and no stock is loaded
-- Reply 4: refused, fewer units are left than are to be taken
-- Reply 5: refused, units are to be taken, and a sale was delisted or is on its way to another partition
-- Error BADARG: an argument or a stock is invalid
-- Written by `just lua` from lua/src/transfer.lua: change that file, not this one
local from = { plain_key = KEYS[1], sale = KEYS[2], journal = KEYS[3], limited_key = KEYS[4] }
from.expected, from.note, from.units = ARGV[1], ARGV[2], ARGV[3]
local to = { plain_key = KEYS[5], sale = KEYS[6], journal = KEYS[7], limited_key = KEYS[8] }
to.expected, to.note, to.units = ARGV[4], ARGV[5], ARGV[6]
local id, by = ARGV[7], ARGV[8]
local call, find = redis.call, string.find
local function is_number(text) return #text <= 14 and (text == '0' or find(text, '^%-?[1-9]%d*$')) end
local function is_word(text) return find(text, '^[%w_.:-]+$') and #text <= 64 end
if not (#KEYS == 8 and #ARGV == 8 and is_word(id) and is_word(by) and from.note ~= '' and to.note ~= ''
  and is_number(from.units) and is_number(to.units)) then
  return redis.error_reply('BADARG expected: keys of both sales, note, note and units of each, id, by')
end
local same = 0
for _, side in ipairs({ from, to }) do
  side.key = call('EXISTS', side.limited_key) == 1 and side.limited_key or side.plain_key
  side.stock = call('GET', side.key)
  side.found = call('HGET', side.sale, 'change') or ''
  side.is_changed = side.stock and side.units ~= '0'
  side.is_journaled = side.is_changed and call('HLEN', side.journal) > 0
  if side.found == side.note then same = same + 1 end
end
if same == 2 then return 1 end
for _, side in ipairs({ from, to }) do
  if side.found ~= side.expected then return 2 end
  if not side.stock and side.units - 0 < 0 then return 3 end
  local stock = side.stock or '0'
  if not is_number(stock) or #string.format('%.0f', stock + side.units) > 13 then
    return redis.error_reply('BADARG a stock is not a number of at most 13 digits, now or after the call')
  end
  local delisted, moving = unpack(call('HMGET', side.sale, 'delisted', 'moving'))
  if from.units - 0 < 0 and (delisted or moving) then return 5 end
end
if from.units - 0 < 0 and from.stock + from.units < 0 then return 4 end
local time = call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
-- HSET comes first: it is refused if memory is short.
call('HSET', from.sale, 'change', from.note)
call('HSET', to.sale, 'change', to.note)
for _, side in ipairs({ from, to }) do
  if side.is_journaled then
    local stock, units = side.stock, side.units
    local action = units - 0 < 0 and 'take' or 'add'
    local movement = '{"action":"' .. action .. '","from":' .. stock .. ',"to":'
      .. string.format('%.0f', stock + units) .. ',"change":' .. units .. ',"by":"' .. by
      .. '","timestamp":' .. now_ms .. '}'
    call('HSET', side.journal, '#' .. action .. ':' .. id, movement)
  end
  if side.is_changed then call('INCRBY', side.key, side.units) end
end
return 0
