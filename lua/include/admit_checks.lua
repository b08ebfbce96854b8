-- All checks of an admission without limits, except whether the user has an order already.
-- Reads: KEYS and ARGV, as in admit.lua. Defines: call, find; stock_key, journal, buyers, stream, order,
-- user, voucher, quantity, traceparent; stock, as text; left, the units after it; now_ms; refuse, which
-- answers for an order that is not admitted.
local call, stock_key, journal, order = redis.call, KEYS[1], KEYS[4], ARGV[1]
local stock = call('GET', stock_key)
-- Most requests in a rush end here.
if stock == '0' and not call('HGET', journal, order) then return 1 end
-- refuse uses no local of the script, because each local that it captures costs every admission.
local function refuse(reply)
  local entry = redis.call('HGET', KEYS[4], ARGV[1])
  if not entry then return reply end
  local find, user, quantity = string.find, ARGV[2], ARGV[4]
  --- @include "known"
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
--- @include "ids"
if #KEYS ~= 5 or #ARGV ~= 5 or not are_ids
  or #stock > 13 or not find(stock, '^%-?[1-9]%d*$') or #traceparent > 128
  or quantity ~= '1' and (not find(quantity, '^[1-9]%d?%d?%d?%d?$') or tonumber(quantity) > 10000) then
  return redis.error_reply('BADARG expected: 5 keys, ids, quantity, traceparent, a stock that is a number')
end
local left = stock - quantity
if left < 0 then return refuse(1) end
local sale = call('HMGET', sale_key, 'begin_ms', 'end_ms', 'state', 'brake')
--- @include "time"
if sale[3] == 'paused' then return refuse(7) end
--- @include "window"
if closed then return refuse(closed) end
--- @include "busy"
if is_busy then return refuse(11) end
