-- Changes the stock of a sale by a difference, and writes a note of it, in one step. A command that changes
-- both Redis and MySQL first writes the note of an open change, and last ends the note. So a later command
-- that finds an open note can finish the change. A refusal or an error leaves no trace.
-- KEYS[1] stock: string, units left; never created here: it would be wrong
-- KEYS[2] voucher: hash of, among others, change (the note, in the form that its writer chose)
-- KEYS[3] journal: gets the movement #add:<id> or #take:<id>, if it exists; absent: nothing is journaled
-- KEYS[4] stock: under its name for a voucher with limits; may be absent
-- Units added to a lost stock have no effect: the stock is rebuilt from MySQL, which has the units by then.
-- A cancelled change returns the units that it took: then the journal has both movements.
-- ARGV[1] expected: the present note, '' for none
-- ARGV[2] note: the new note
-- ARGV[3] units: to be added, or taken with a minus; 0 changes the note only; at most 13 digits
-- ARGV[4] id of the change, ARGV[5] by: with KEYS[3]: each 1 .. 64 letters, digits and _.:-
-- Reply 0: done
-- Reply 1: was done before, nothing changed: the voucher has this very note
-- Reply 2: refused, the present note is not the expected one
-- Reply 3: refused, units are to be taken and no stock is loaded
-- Reply 4: refused, fewer units are left than are to be taken
-- Error BADARG: an argument or the stock is invalid
-- Written by `just lua` from lua/src/adjust_stock.lua: change that file, not this one
local plain_key, sale_key, journal, limited_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local expected, note, units, id, by = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local call, find = redis.call, string.find
local function is_number(text) return #text <= 14 and (text == '0' or find(text, '^%-?[1-9]%d*$')) end
local function is_word(text) return find(text, '^[%w_.:-]+$') and #text <= 64 end
if not (#KEYS == 2 and #ARGV == 3 or #KEYS > 2 and #KEYS < 5 and #ARGV == 5 and is_word(id) and is_word(by))
  or note == '' or not is_number(units) then
  return redis.error_reply('BADARG expected: keys, the note that is there, a note, units; id, by')
end
local stock_key = limited_key and call('EXISTS', limited_key) == 1 and limited_key or plain_key
local stock, found = call('GET', stock_key), call('HGET', sale_key, 'change') or ''
if found == note then return 1 end
if found ~= expected then return 2 end
if not stock and units - 0 < 0 then return 3 end
if not is_number(stock or '0') or #string.format('%.0f', (stock or 0) + units) > 13 then
  return redis.error_reply('BADARG the stock is not a number of at most 13 digits, now or after the call')
end
if units - 0 < 0 and stock + units < 0 then return 4 end
local is_changed = stock and units ~= '0'
local is_journaled = journal and is_changed and call('HLEN', journal) > 0
-- HSET comes first: it is refused when memory is short.
call('HSET', sale_key, 'change', note)
if is_journaled then
  local time = call('TIME')
  local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
  local action = units - 0 < 0 and 'take' or 'add'
  local movement = '{"action":"' .. action .. '","from":' .. stock .. ',"to":'
    .. string.format('%.0f', stock + units) .. ',"change":' .. units .. ',"by":"' .. by
    .. '","timestamp":' .. now_ms .. '}'
  call('HSET', journal, '#' .. action .. ':' .. id, movement)
end
if is_changed then call('INCRBY', stock_key, units) end
return 0
