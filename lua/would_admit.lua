-- Answers what admit.lua would answer now. Changes nothing.
-- KEYS[1] stock, KEYS[2] buyers, KEYS[3] voucher, KEYS[4] journal, KEYS[5] stream: as in admit.lua
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] voucher id, ARGV[4] quantity, ARGV[5] traceparent: as there
-- Answers 0 1 2 3 4 5 6 7 8 11 12, Errors BADARG IDTAKEN OTHERQTY: as in admit.lua
-- Reply 0: it would be admitted
-- Written by `just lua` from lua/src/would_admit.lua: change that file, not this one
local call, stock_key, journal, order = redis.call, KEYS[1], KEYS[4], ARGV[1]
local stock = call('GET', stock_key)
-- Most requests in a rush end here.
if stock == '0' and not call('HGET', journal, order) then return 1 end
-- refuse uses no local of the script, because each local that it captures costs every admission.
local function refuse(reply)
  local entry = redis.call('HGET', KEYS[4], ARGV[1])
  if not entry then return reply end
  local find, user, quantity = string.find, ARGV[2], ARGV[4]
  local taken = entry and not find(entry, '"by":"' .. user .. '"', 1, true)
    and 'IDTAKEN the order id belongs to an order of another user'
  local known = 'OTHERQTY this order was admitted before with another quantity'
  if find(entry, '"action":"release"', 1, true) then
    known = 8
  elseif taken then
    known = taken
  elseif find(entry, '"change":-' .. quantity .. ',', 1, true) then
    known = 6
  end
  if type(known) == 'string' then return redis.error_reply(known) end
  return known
end
local buyers, sale_key, stream = KEYS[2], KEYS[3], KEYS[5]
if not stock then
  if call('HGET', sale_key, 'state') == 'paused' then return refuse(7) end -- the sale may have moved
  if call('HGET', journal, '#limited') then return refuse(12) end
  return refuse(3)
end
if stock == '0' then return refuse(1) end
local user, voucher, quantity, traceparent = ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local find, values, first, last = string.find, ARGV, 1, 3
local are_ids = true
for at = first, last do
  local id = values[at] or ''
  if not find(id, '^[1-9]%d*$') or #id > 18 and (#id > 19 or id > '9223372036854775807') then
    are_ids = false
  end
end
if #KEYS ~= 5 or #ARGV ~= 5 or not are_ids
  or #stock > 13 or not find(stock, '^%-?[1-9]%d*$') or #traceparent > 128
  or quantity ~= '1' and (not find(quantity, '^[1-9]%d?%d?%d?%d?$') or tonumber(quantity) > 10000) then
  return redis.error_reply('BADARG expected: 5 keys, ids, quantity, traceparent, a stock that is a number')
end
local left = stock - quantity
if left < 0 then return refuse(1) end
local sale = call('HMGET', sale_key, 'begin_ms', 'end_ms', 'state', 'brake')
local time = call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
if sale[3] == 'paused' then return refuse(7) end
local closed
if sale[1] and now_ms - sale[1] < 0 then
  closed = 4
elseif sale[2] and now_ms - sale[2] >= 0 then
  closed = 5
end
if closed then return refuse(closed) end
local is_busy = sale[4]
  and (find(sale[4], '^until') == 1) == (now_ms - string.match(sale[4], '%d+') < 0)
if is_busy then return refuse(11) end
if call('SISMEMBER', buyers, user) == 1 then return refuse(2) end
return refuse(0)
