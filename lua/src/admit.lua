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
--- @include "admit_checks"
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
