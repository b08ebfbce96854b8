-- Admits one order of a voucher that has limits, as admit.lua does, and counts what it uses in the same
-- step. A refusal or an error leaves no trace. The clock of this server counts; if it went back, windows go
-- on.
-- KEYS[1] stock: string, units left, under its name for a voucher with limits
-- KEYS[2] buyers, KEYS[3] voucher, KEYS[4] journal, KEYS[5] stream: as in admit.lua
-- KEYS[6] limits: hash of the voucher: rules, see README: whether a user may hold several orders, each in a
-- slot of its own, 1 .. 31; the campaign; and the rules
-- KEYS[7] uses: hash of the voucher: what is counted, by rule and subject, and u:<user>, the slots in use
-- KEYS[8] limits, KEYS[9] uses: of its campaign; absent if there is none
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] voucher id, ARGV[4] quantity, ARGV[5] traceparent: as there
-- ARGV[6] and all that follow: name, value, name, value, ... of subjects such as phone, at most 16; names of
-- 1 .. 32 of a-z 0-9 _, a letter first, and not user; values of 1 .. 64 of A-Z a-z 0-9 _ . : + / = -
-- Reply 0: admitted; Reply 1: sold out; Reply 2: this user has an order; Reply 3: no stock is loaded
-- Reply 4: the sale has not begun; Reply 5: the sale is over; Reply 6: this very order was admitted before
-- Reply 7: the sale is paused; Reply 8: this very order was admitted and released
-- Reply 11: the sale is busy: workers are too far behind, or no worker is alive
-- Reply array: 9; name of the limit, which is slots if the user holds 31 orders; orders left, '' for no
-- bound; units left, '' for no bound; when it opens again in Unix ms, '' for never
-- Reply array: 10; name of the rate; milliseconds to wait
-- Error BADARG: an argument or the stock is invalid
-- Error NOLIMITS: the voucher has no limits: ask admit.lua
-- Error CAMPAIGN: the voucher is in a campaign, whose id follows, and KEYS[8] and KEYS[9] are not its hashes
-- Error NOSUBJECT: a limit counts by a subject that was not sent, whose name follows
-- Error IDTAKEN: the order id belongs to an order of another user
-- Error BADUSES: what is counted in this field, which follows, has an unknown form: nothing was written
-- Error OTHERQTY: this order was admitted before, with another quantity
--- @include "limited_checks"
local note = '{"action":"admit","from":' .. stock .. ',"to":' .. format('%d', left) .. ',"change":-'
  .. quantity .. ',"by":"' .. user .. '","timestamp":' .. now_ms .. ',"slot":'
  .. (slot == 1 and '1' or slot) .. ',"uses":"' .. used .. '"}'
local extra
if quantity ~= '1' then extra = { 'quantity', quantity } end
if slot ~= 1 then
  extra = extra or {}
  extra[#extra + 1], extra[#extra + 2] = 'slot', slot
end
if traceparent ~= '' then
  extra = extra or {}
  extra[#extra + 1], extra[#extra + 2] = 'traceparent', traceparent
end
local marked = redis.pcall('SADD', buyers, user)
if type(marked) == 'table' then return marked end
if marked == 0 and not has_slots then return refuse(2) end
local noted = redis.pcall('HSETNX', journal, order, note)
local failed = noted
if noted == 1 then
  local added = redis.pcall('XADD', stream, '*', 'userId', user, 'voucherId', voucher, 'id', order,
    'uses', used, unpack(extra or ARGV, extra and 1 or #ARGV + 1))
  if type(added) == 'string' then
    if own[1] then call('HSET', uses, unpack(own)) end
    if shared and shared[1] then call('HSET', campaign_uses, unpack(shared)) end
    call('DECRBY', stock_key, quantity)
    return 0
  end
  failed = added
  call('HDEL', journal, order)
end
if marked == 1 then call('SREM', buyers, user) end
if noted == 0 then return refuse(2) end
return failed
