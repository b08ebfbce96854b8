-- Admits many orders of one voucher, each by the rules of admit.lua and each for itself, one after the other.
-- KEYS[1] stock, KEYS[2] buyers, KEYS[3] voucher, KEYS[4] journal, KEYS[5] stream: as in admit.lua
-- ARGV[1] voucher id; then of each order, at most 1000: ARGV[2] order id, ARGV[3] user id, ARGV[4] quantity,
-- ARGV[5] traceparent: as in admit.lua; ARGV[6] is the id of the second order, and so on
-- Reply: array, an answer for each order: what admit.lua replies, or the text of its error: nothing was done
-- Error BADARG: keys, voucher id, stock or number of arguments are not what they must be; nothing was done
local call, pcall, find, voucher, max = redis.call, redis.pcall, string.find, ARGV[1], '9223372036854775807'
local stock, id, answers, orders = #KEYS == 5 and call('GET', KEYS[1]), '^[1-9]%d*$', {}, {}
if #KEYS ~= 5 or #ARGV < 5 or #ARGV > 4001 or #ARGV % 4 ~= 1
  or not find(voucher, id) or #voucher > 18 and (#voucher > 19 or voucher > max)
  or stock and (#stock > 13 or stock ~= '0' and not find(stock, '^%-?[1-9]%d*$')) then
  return redis.error_reply('BADARG wanted: 5 keys, voucher id, 4 arguments an order, a numeric stock')
end
local function refuse(entry, user, quantity, reply) -- entry: what the journal holds of this order
  if not entry or type(entry) == 'table' then return entry and entry.err or reply end
  return find(entry, '"action":"release"', 1, true) and 8
    or not find(entry, '"by":"' .. user .. '"', 1, true)
      and 'IDTAKEN the order id belongs to an order of another user'
    or find(entry, '"change":-' .. quantity .. ',', 1, true) and 6
    or 'OTHERQTY this order was admitted before, with another quantity'
end
if not stock or stock == '0' then -- most callers in a rush end here
  for at = 2, #ARGV, 4 do orders[#orders + 1] = ARGV[at] end
  local entries = call('HMGET', KEYS[4], unpack(orders))
  local reply = stock and 1 or call('HGET', KEYS[3], 'state') == 'paused' and 7
    or call('HGET', KEYS[4], '#limited') and 12 or 3
  for n = 1, #orders do answers[n] = refuse(entries[n], ARGV[4 * n - 1], ARGV[4 * n], reply) end
  return answers end
local sale, time = call('HMGET', KEYS[3], 'begin_ms', 'end_ms', 'state', 'brake'), call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
local closed = sale[3] == 'paused' and 7
  or sale[1] and now_ms - sale[1] < 0 and 4 or sale[2] and now_ms - sale[2] >= 0 and 5 or sale[4]
    and (find(sale[4], '^until') == 1) == (now_ms - string.match(sale[4], '%d+') < 0) and 11
local from = stock -- units left before each order. No error may end the script before the last lines: pcall
local function admit(order, user, quantity, traceparent)
  if #traceparent > 128 or not (find(order, id) and find(user, id))
    or #order > 18 and (#order > 19 or order > max) or #user > 18 and (#user > 19 or user > max)
    or quantity ~= '1' and (not find(quantity, '^[1-9]%d?%d?%d?%d?$') or tonumber(quantity) > 10000) then
    return 'BADARG wanted: ids, a quantity, a traceparent' end
  local reason = from - quantity < 0 and 1 or closed
  local marked = not reason and pcall('SADD', KEYS[2], user)
  if marked ~= 1 then
    return refuse(pcall('HGET', KEYS[4], order), user, quantity, reason or marked == 0 and 2 or marked.err)
  end
  local to = string.format('%d', from - quantity)
  local noted, added = pcall('HSETNX', KEYS[4], order, '{"action":"admit","from":' .. from .. ',"to":' .. to
    .. ',"change":-' .. quantity .. ',"by":"' .. user .. '","timestamp":' .. now_ms .. '}')
  if noted == 1 then
    local extra = quantity ~= '1' and { 'quantity', quantity } or traceparent ~= '' and {}
    if traceparent ~= '' then extra[#extra + 1], extra[#extra + 2] = 'traceparent', traceparent end
    added = pcall('XADD', KEYS[5], '*', 'userId', user, 'voucherId', voucher, 'id', order,
      unpack(extra or ARGV, extra and 1 or #ARGV + 1)) -- for most orders nothing, and no table is made
    if type(added) == 'string' then from, added = to, 0 return added end
    pcall('HDEL', KEYS[4], order)
  end
  pcall('SREM', KEYS[2], user)
  return noted == 0 and refuse(pcall('HGET', KEYS[4], order), user, quantity, 2) or (added or noted).err
end
for at = 2, #ARGV, 4 do answers[#answers + 1] = admit(unpack(ARGV, at, at + 3)) end
if from ~= stock then call('DECRBY', KEYS[1], stock - from) end return answers
