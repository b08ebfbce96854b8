-- Ends the sale of a voucher for good: requests for an order get the answer that it is over, even if it was
-- paused or had not begun. Its keys stay, until lua/remove_delisted.lua removes them.
-- KEYS[1] stock: string, units left; KEYS[2] buyers: set of the users who were admitted
-- KEYS[3] voucher: hash of, among others, begin_ms, end_ms, state, pause and delisted (since when, in Unix
-- milliseconds by the clock of this server); KEYS[4] journal: hash, order id -> stock movement as JSON
-- KEYS[5] stock: under its name for a voucher with limits
-- Reply 0: there is no stock, no buyers and no journal, so nothing is marked; a window or a pause without
-- them is removed
-- Reply 1: delisted
-- Reply 2: was delisted before
-- Written by `just lua` from lua/src/delist.lua: change that file, not this one
local stock, buyers, sale_key, journal, limited_stock = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local call = redis.call
local sale = call('HMGET', sale_key, 'delisted', 'begin_ms', 'end_ms')
local time = call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
if call('EXISTS', stock, buyers, journal, limited_stock) == 0 then
  call('UNLINK', sale_key)
  return 0
end
local function is_after(bound) return not bound or bound - now_ms > 0 end
-- HSET comes first: it is refused if memory is short.
call('HSET', sale_key, 'delisted', sale[1] or now_ms, 'end_ms', is_after(sale[3]) and now_ms or sale[3])
if sale[2] and is_after(sale[2]) then call('HDEL', sale_key, 'begin_ms') end
call('HDEL', sale_key, 'state', 'pause')
if sale[1] then return 2 end
return 1
