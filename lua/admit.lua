-- Admits one order: takes its units from the stock, marks its user, journals it, appends it to the stream.
-- A refusal or an error leaves no trace: what can fail comes first, and what came before it is undone.
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
-- Reply 8: this very order was admitted and given back
-- Reply 11: the sale is busy: workers are too far behind, or none lives
-- Reply 12: the voucher has limits: ask admit_limited.lua
-- Error BADARG: an argument or the stock is not what it must be
-- Error IDTAKEN: the order id belongs to an order of another user
-- Error OTHERQTY: this order was admitted before, with another quantity
local call, stock = redis.call, redis.call('GET', KEYS[1])
if stock == '0' and not call('HGET', KEYS[4], ARGV[1]) then return 1 end -- most callers in a rush end here
local function refuse(reply) -- names no local of the script: each one that it names costs every admission
  local entry = redis.call('HGET', KEYS[4], ARGV[1])
  if not entry then return reply elseif string.find(entry, '"action":"release"', 1, true) then return 8 end
  local is_own = string.find(entry, '"by":"' .. ARGV[2] .. '"', 1, true)
  if not is_own then return redis.error_reply('IDTAKEN the order id belongs to an order of another user') end
  if string.find(entry, '"change":-' .. ARGV[4] .. ',', 1, true) then return 6 end
  return redis.error_reply('OTHERQTY this order was admitted before, with another quantity')
end
if not stock and call('HGET', KEYS[3], 'state') == 'paused' then return refuse(7) end -- it may have moved
if not stock and call('HGET', KEYS[4], '#limited') then return refuse(12) end
if not stock then return refuse(3) elseif stock == '0' then return refuse(1) end
local order, user, voucher, quantity, traceparent = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local find, id, max = string.find, '^[1-9]%d*$', '9223372036854775807' -- text: doubles lose its digits
if #KEYS ~= 5 or #ARGV ~= 5 or #stock > 13 or #traceparent > 128
  or not (find(order, id) and find(user, id) and find(voucher, id) and find(stock, '^%-?[1-9]%d*$'))
  or quantity ~= '1' and (not find(quantity, '^[1-9]%d?%d?%d?%d?$') or tonumber(quantity) > 10000)
  or #order > 18 and (#order > 19 or order > max) or #user > 18 and (#user > 19 or user > max)
  or #voucher > 18 and (#voucher > 19 or voucher > max) then
  return redis.error_reply('BADARG wanted: 5 keys, ids, quantity, traceparent, a stock that is a number')
end
local left = stock - quantity if left < 0 then return refuse(1) end
local sale, time = call('HMGET', KEYS[3], 'begin_ms', 'end_ms', 'state', 'brake'), call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
if sale[3] == 'paused' then return refuse(7) end if sale[1] and now_ms - sale[1] < 0 then return refuse(4) end
if sale[2] and now_ms - sale[2] >= 0 then return refuse(5) end
if sale[4] and (find(sale[4], '^until') == 1) == (now_ms - string.match(sale[4], '%d+') < 0) then
  return refuse(11) end -- 'until <ms>', or 'from <ms>'
local marked = redis.pcall('SADD', KEYS[2], user)
if marked ~= 1 then return refuse(marked == 0 and 2 or marked) end
local entry = '{"action":"admit","from":' .. stock .. ',"to":' .. string.format('%d', left) .. ',"change":-'
  .. quantity .. ',"by":"' .. user .. '","timestamp":' .. now_ms .. '}'
local noted, added = redis.pcall('HSETNX', KEYS[4], order, entry) if noted == 1 then
  local extra = quantity ~= '1' and { 'quantity', quantity } or traceparent ~= '' and {}
  if traceparent ~= '' then extra[#extra + 1], extra[#extra + 2] = 'traceparent', traceparent end
  added = redis.pcall('XADD', KEYS[5], '*', 'userId', user, 'voucherId', voucher, 'id', order,
    unpack(extra or ARGV, extra and 1 or 6)) -- ARGV ends at 5: for most orders nothing, and no table is made
  if type(added) == 'string' then call('DECRBY', KEYS[1], quantity) return 0 end
  call('HDEL', KEYS[4], order)
end
call('SREM', KEYS[2], user) return noted == 0 and refuse(2) or added or noted
