-- Moves units from the stock of one sale to that of another, step by step as restock.lua changes one: first
-- both notes and what is taken, last both notes and what is added. Both sales are changed, or neither is.
-- What is added to a lost stock adds nothing: it is made anew from MySQL, which has the units by then.
-- A refusal or an error leaves no trace.
-- KEYS[1] stock, KEYS[2] voucher, KEYS[3] journal, KEYS[4] stock: of the sale that gives, as in restock.lua
-- KEYS[5] stock, KEYS[6] voucher, KEYS[7] journal, KEYS[8] stock: of the sale that gets
-- ARGV[1] expected, ARGV[2] note, ARGV[3] units: of the sale that gives, as in restock.lua
-- ARGV[4] expected, ARGV[5] note, ARGV[6] units: of the sale that gets
-- ARGV[7] id of the move, ARGV[8] by: each 1 .. 64 letters, digits and _.:-
-- Reply 0: done
-- Reply 1: was done before, nothing changed: these very notes stand there
-- Reply 2: refused, another note stands there than expected
-- Reply 3: refused, units are to be taken and no stock is loaded
-- Reply 4: refused, fewer units are left than are to be taken
-- Reply 5: refused, units are to be taken, and a sale was delisted or is on its way to another partition
-- Error BADARG: an argument or a stock is not what it must be
local call, find, sides, same = redis.call, string.find, {}, 0
local function is_number(text) return #text <= 14 and (text == '0' or find(text, '^%-?[1-9]%d*$')) end
local function is_word(text) return find(text, '^[%w_.:-]+$') and #text <= 64 end
if not (#KEYS == 8 and #ARGV == 8 and is_word(ARGV[7]) and is_word(ARGV[8]) and ARGV[2] ~= ''
  and ARGV[5] ~= '' and is_number(ARGV[3]) and is_number(ARGV[6])) then
  return redis.error_reply('BADARG wanted: keys of both sales, note, note and units of each, id, by')
end
for at = 1, 2 do
  local key, arg = at * 4 - 4, at * 3 - 3
  local side = { expected = ARGV[arg + 1], note = ARGV[arg + 2], units = ARGV[arg + 3], sale = KEYS[key + 2],
    journal = KEYS[key + 3] }
  side.key = call('EXISTS', KEYS[key + 4]) == 1 and KEYS[key + 4] or KEYS[key + 1]
  side.stock, side.found = call('GET', side.key), call('HGET', side.sale, 'change') or ''
  side.is_changed = side.stock and side.units ~= '0'
  side.is_journaled = side.is_changed and call('HLEN', side.journal) > 0
  if side.found == side.note then same = same + 1 end
  sides[at] = side
end
if same == 2 then return 1 end
for _, side in ipairs(sides) do
  if side.found ~= side.expected then return 2 end
  if not side.stock and side.units - 0 < 0 then return 3 end
  local stock = side.stock or '0'
  if not is_number(stock) or #string.format('%.0f', stock + side.units) > 13 then
    return redis.error_reply('BADARG a stock is no number of at most 13 digits, or would be none')
  end
  local over = call('HMGET', side.sale, 'delisted', 'moving')
  if ARGV[3] - 0 < 0 and (over[1] or over[2]) then return 5 end
end
if ARGV[3] - 0 < 0 and sides[1].stock + ARGV[3] < 0 then return 4 end
local time = call('TIME')
-- HSET comes first: it is refused when memory is short.
for _, side in ipairs(sides) do call('HSET', side.sale, 'change', side.note) end
for _, side in ipairs(sides) do
  if side.is_journaled then
    local action = side.units - 0 < 0 and 'take' or 'add'
    local to = string.format('%.0f', side.stock + side.units)
    call('HSET', side.journal, '#' .. action .. ':' .. ARGV[7], '{"action":"' .. action .. '","from":'
      .. side.stock .. ',"to":' .. to .. ',"change":' .. side.units .. ',"by":"' .. ARGV[8]
      .. '","timestamp":' .. time[1] .. string.sub('00000' .. time[2], -6, -4) .. '}')
  end
  if side.is_changed then call('INCRBY', side.key, side.units) end
end
return 0
