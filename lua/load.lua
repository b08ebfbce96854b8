-- Opens the sale of a voucher: sets its stock and its window in one step. It never changes a sale that is
-- on. A refusal or an error leaves no trace. Buyers and journal stay: a user who has an order keeps it.
-- KEYS[1] stock: string, units left
-- KEYS[2] voucher: hash of begin_ms, end_ms (missing: no bound), state, delisted; a pause outlives a load
-- KEYS[3] journal: gets the movement #load; it is #complete from now on if it was empty, or was complete and
-- its stock existed; absent: nothing is journaled
-- KEYS[4] stock: under its name for a voucher with limits; if it is absent, a voucher with limits is refused
-- ARGV[1] units: 0 .. 9999999999999 (13 digits, see README: Ids stay text)
-- ARGV[2] begin_ms: Unix time in milliseconds, '' for no bound
-- ARGV[3] end_ms: likewise, later than begin_ms
-- ARGV[4] by: with KEYS[3]: the one who loads, as in release.lua; '' if a script without a journal will
-- sell: then no movement is written, and the journal is not complete from now on
-- ARGV[5] unbegun: optional text, with KEYS[4]: only a sale that has not begun, and has neither stock nor
-- orders, is loaded
-- Reply 0: loaded
-- Reply 1: refused, a stock is loaded and its sale has not ended by the clock of this server; with ARGV[5],
-- also if there is any stock or a journal
-- Reply 2: loaded, but the sale is still paused
-- Reply 3: refused, the voucher was delisted
-- Reply 4: refused, with ARGV[5]: the sale has begun
-- Error BADARG: an argument is invalid
-- Error LIMITED: the voucher has limits, and KEYS[4] is missing
-- Written by `just lua` from lua/src/load.lua: change that file, not this one
local plain_key, sale_key, journal, limited_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local units, begin_ms, end_ms, by, unbegun = unpack(ARGV, 1, 5)
local call, find = redis.call, string.find
local function is_window(begin_ms, end_ms)
  return #begin_ms <= 14 and find(begin_ms, '^%d*$') and #end_ms <= 14 and find(end_ms, '^%d*$')
    and (begin_ms == '' or end_ms == '' or end_ms - begin_ms > 0)
end
if #KEYS ~= #ARGV - 1 and (#KEYS ~= 4 or #ARGV ~= 4) or #ARGV < 3 or #ARGV > 5
  or journal and (not find(by, '^[%w_.:-]*$') or #by > 64)
  or #units > 13 or units ~= '0' and not find(units, '^[1-9]%d*$')
  or not is_window(begin_ms, end_ms) then
  return redis.error_reply('BADARG expected: keys, units, begin_ms, a later end_ms, by with a journal')
end
local stock_key = plain_key
if journal and call('HGET', journal, '#limited') then
  if not limited_key then return redis.error_reply('LIMITED the voucher has limits: KEYS[4] is missing') end
  stock_key = limited_key
end
local loaded = call('GET', stock_key)
local time = call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
local sale = call('HMGET', sale_key, 'end_ms', 'state', 'delisted')
if sale[3] then return 3 end
if unbegun and not (begin_ms ~= '' and begin_ms - now_ms > 0) then return 4 end
if loaded and (unbegun or not (sale[1] and now_ms - sale[1] >= 0)) then return 1 end
if unbegun and call('HLEN', journal) > (call('HGET', journal, '#limited') and 1 or 0) then return 1 end
local loaded_before, was_complete
if journal then loaded_before, was_complete = unpack(call('HMGET', journal, '#load', '#complete')) end
-- HSET and SET come first: they are refused if memory is short, HDEL would not be.
if journal and by ~= '' then
  local is_empty = call('HLEN', journal) == (call('HGET', journal, '#limited') and 1 or 0)
  local from = tonumber(loaded or '') -- the loaded total grows by as much as the stock
  local change = units
  if not is_empty then
    change = (string.match(loaded_before or '', '"change":(%-?%d+)') or 0) + units - (from or 0)
  end
  call('HSET', journal, '#load', '{"action":"load","from":' .. (from and loaded or 'null') .. ',"to":'
    .. units .. ',"change":' .. string.format('%.0f', change) .. ',"by":"' .. by
    .. '","timestamp":' .. now_ms .. '}')
  local complete = '{"action":"complete","by":"load","timestamp":' .. now_ms .. '}'
  if is_empty then call('HSET', journal, '#complete', complete) end
  if from then was_complete = nil end
end
call('SET', stock_key, units)
if was_complete then call('HDEL', journal, '#complete') end -- its sum is unknown from now on
for field, value in pairs({ begin_ms = begin_ms, end_ms = end_ms }) do
  if value == '' then
    call('HDEL', sale_key, field)
  else
    call('HSET', sale_key, field, value)
  end
end
if sale[2] == 'paused' then return 2 end
return 0
