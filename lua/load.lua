-- Opens the sale of a voucher: sets its stock and its window in one step. Never touches a sale that is on.
-- A refusal or an error leaves no trace. Buyers and journal stay: whoever has an order keeps it.
-- KEYS[1] stock: string, units left
-- KEYS[2] voucher: hash of begin_ms, end_ms (missing: no bound) and state; a pause outlives the loading
-- ARGV[1] units: 0 .. 9999999999999 (13 digits, see README: Ids stay text)
-- ARGV[2] begin_ms: Unix time in milliseconds, '' for no bound
-- ARGV[3] end_ms: likewise, later than begin_ms
-- Reply 0: loaded
-- Reply 1: refused, a stock is loaded and its sale has not ended by the clock of this server
-- Reply 2: loaded, but the sale is still paused
-- Error BADARG: an argument is not what it must be
local units, begin_ms, end_ms = ARGV[1], ARGV[2], ARGV[3]
local call, find = redis.call, string.find
if #KEYS ~= 2 or #ARGV ~= 3 or #units > 13 or units ~= '0' and not find(units, '^[1-9]%d*$')
  or #begin_ms > 14 or not find(begin_ms, '^%d*$') or #end_ms > 14 or not find(end_ms, '^%d*$')
  or begin_ms ~= '' and end_ms ~= '' and begin_ms - end_ms >= 0 then
  return redis.error_reply('BADARG wanted: 2 keys, units, begin_ms, a later end_ms')
end
local loaded, sale, time = call('GET', KEYS[1]), call('HMGET', KEYS[2], 'end_ms', 'state'), call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
if loaded and not (sale[1] and now_ms - sale[1] >= 0) then return 1 end
-- SET comes first: it is refused when memory is short, HDEL would not be.
call('SET', KEYS[1], units)
for field, value in pairs({ begin_ms = begin_ms, end_ms = end_ms }) do
  if value == '' then call('HDEL', KEYS[2], field) else call('HSET', KEYS[2], field, value) end
end
if sale[2] == 'paused' then return 2 end
return 0
