-- Admits many orders of one voucher, one after the other, each by the rules of admit.lua and independently.
-- KEYS[1] stock, KEYS[2] buyers, KEYS[3] voucher, KEYS[4] journal, KEYS[5] stream: as in admit.lua
-- ARGV[1] voucher id; then of each order, at most 1000: ARGV[2] order id, ARGV[3] user id, ARGV[4] quantity,
-- ARGV[5] traceparent: as in admit.lua; ARGV[6] is the id of the second order, and so on
-- Reply list: an answer for each order: the reply of admit.lua, or its error text if nothing was done
-- Answers 0 1 2 3 4 5 6 7 8 11 12, Errors BADARG IDTAKEN OTHERQTY: as in admit.lua
-- Error BADARG: keys, voucher id, stock or number of arguments are invalid; nothing was done
local call, pcall, find = redis.call, redis.pcall, string.find
local stock_key, buyers, sale_key, journal, stream = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local voucher = ARGV[1]
local stock = #KEYS == 5 and call('GET', stock_key)
local values, first, last = ARGV, 1, 1
--- @include "ids"
if #KEYS ~= 5 or #ARGV < 5 or #ARGV > 4001 or #ARGV % 4 ~= 1 or not are_ids
  or stock and (#stock > 13 or stock ~= '0' and not find(stock, '^%-?[1-9]%d*$')) then
  return redis.error_reply('BADARG expected: 5 keys, voucher id, 4 arguments an order, a numeric stock')
end
local function refuse(entry, user, quantity, reply) -- entry: the journal's note of this order
  if not entry then return reply end
  if type(entry) == 'table' then return entry.err end
  --- @include "known"
  return known
end
local answers = {}
if not stock or stock == '0' then -- most requests in a rush end here
  local orders, answer = {}, 1
  for at = 2, #ARGV, 4 do orders[#orders + 1] = ARGV[at] end
  local entries = call('HMGET', journal, unpack(orders))
  if not stock then
    if call('HGET', sale_key, 'state') == 'paused' then
      answer = 7
    elseif call('HGET', journal, '#limited') then
      answer = 12
    else
      answer = 3
    end
  end
  for n = 1, #orders do answers[n] = refuse(entries[n], ARGV[4 * n - 1], ARGV[4 * n], answer) end
  return answers
end
local sale = call('HMGET', sale_key, 'begin_ms', 'end_ms', 'state', 'brake')
--- @include "time"
local sale_answer -- the answer of the sale to every order, or nothing
if sale[3] == 'paused' then
  sale_answer = 7
else
  --- @include "window"
  --- @include "busy"
  sale_answer = closed
  if not closed and is_busy then sale_answer = 11 end
end
local from = stock -- units left before each order. No error may end the script before the last lines: pcall
local function admit(at)
  local order, user, quantity, traceparent = unpack(ARGV, at, at + 3)
  local values, first, last = ARGV, at, at + 1
  --- @include "ids"
  if not are_ids or #traceparent > 128
    or quantity ~= '1' and (not find(quantity, '^[1-9]%d?%d?%d?%d?$') or tonumber(quantity) > 10000) then
    return 'BADARG expected: ids, a quantity, a traceparent'
  end
  local answer = sale_answer
  if from - quantity < 0 then answer = 1 end
  if not answer then
    local marked = pcall('SADD', buyers, user)
    if marked == 0 then
      answer = 2
    elseif marked ~= 1 then
      answer = marked.err
    end
  end
  if answer then return refuse(pcall('HGET', journal, order), user, quantity, answer) end
  local to = string.format('%d', from - quantity)
  local note = '{"action":"admit","from":' .. from .. ',"to":' .. to .. ',"change":-' .. quantity
    .. ',"by":"' .. user .. '","timestamp":' .. now_ms .. '}'
  local noted = pcall('HSETNX', journal, order, note)
  local failed = noted
  if noted == 1 then
    local extra
    if quantity ~= '1' then extra = { 'quantity', quantity } end
    if traceparent ~= '' then
      extra = extra or {}
      extra[#extra + 1], extra[#extra + 2] = 'traceparent', traceparent
    end
    local added = pcall('XADD', stream, '*', 'userId', user, 'voucherId', voucher, 'id', order,
      unpack(extra or ARGV, extra and 1 or #ARGV + 1)) -- most orders have nothing extra, so no table is made
    if type(added) == 'string' then
      from = to
      return 0
    end
    failed = added
    pcall('HDEL', journal, order)
  end
  pcall('SREM', buyers, user)
  if noted == 0 then return refuse(pcall('HGET', journal, order), user, quantity, 2) end
  return failed.err
end
for at = 2, #ARGV, 4 do answers[#answers + 1] = admit(at) end
if from ~= stock then call('DECRBY', stock_key, stock - from) end
return answers
