-- Admits one order: takes its units from the stock, marks its user, journals it, appends it to the stream.
-- A refusal or an error leaves no trace: steps that can fail come first, and steps before them are undone.
-- KEYS[1] stock: string, units left, at most 13 digits; KEYS[2] buyers: set of the users who were admitted
-- KEYS[3] voucher: hash of begin_ms, end_ms (missing: no bound) and state ('paused' stops the sale)
-- KEYS[4] journal: hash, order id -> stock movement as JSON; KEYS[5] stream: the orders
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] voucher id: each 1 .. 2^63-1, decimal, no sign, no padding
-- ARGV[4] quantity: 1 .. 10000; ARGV[5] traceparent: of the caller, at most 128 bytes, '' for none
-- Reply 0: admitted; Reply 1: sold out, or fewer units left than wanted
-- Reply 2: this user already has an order; Reply 3: no stock is loaded
-- Reply 4: the sale has not begun; Reply 5: the sale is over
-- Reply 6: this very order was admitted before: success for a caller who lost the first reply
-- Reply 7: the sale is paused
-- Reply 8: this very order was admitted and released
-- Reply 11: the sale is busy: workers are too far behind, or no worker is alive
-- Reply 12: the voucher has limits: call admit_limited.lua
-- Error BADARG: an argument or the stock is invalid
-- Error IDTAKEN: the order id belongs to an order of another user
-- Error OTHERQTY: this order was admitted before, with another quantity
-- Written by `just lua` from lua/src/admit.lua: change that file, not this one
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
local marked = redis.pcall('SADD', buyers, user)
if marked == 0 then return refuse(2) end
if marked ~= 1 then return refuse(marked) end
local note = '{"action":"admit","from":' .. stock .. ',"to":' .. string.format('%d', left) .. ',"change":-'
  .. quantity .. ',"by":"' .. user .. '","timestamp":' .. now_ms .. '}'
local noted = redis.pcall('HSETNX', journal, order, note)
local failed = noted
if noted == 1 then
  local extra
  if quantity ~= '1' then extra = { 'quantity', quantity } end
  if traceparent ~= '' then
    extra = extra or {}
    extra[#extra + 1], extra[#extra + 2] = 'traceparent', traceparent
  end
  -- ARGV ends at 5: most orders have nothing extra, and no table is made for them.
  local added = redis.pcall('XADD', stream, '*', 'userId', user, 'voucherId', voucher, 'id', order,
    unpack(extra or ARGV, extra and 1 or 6))
  if type(added) == 'string' then
    call('DECRBY', stock_key, quantity)
    return 0
  end
  failed = added
  call('HDEL', journal, order)
end
call('SREM', buyers, user)
if noted == 0 then return refuse(2) end
return failed
