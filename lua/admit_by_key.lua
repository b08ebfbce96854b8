-- Admits an order as admit.lua does, under a key that the caller chose. A second request under the same key
-- asks for the same order. The order and its key are written in one step: a failover loses both or none.
-- KEYS[1] stock, KEYS[2] buyers, KEYS[3] voucher, KEYS[4] journal, KEYS[5] stream: as in admit.lua
-- Behind them the key: string 'order id digest', of one caller's key, user and voucher
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] voucher id, ARGV[4] quantity, ARGV[5] traceparent: as in
-- admit.lua. The order id is for a key that is new; a refusal leaves the key as it was
-- Behind them a digest of the whole request, 64 letters or digits at most; then for how many milliseconds
-- Redis keeps the key of an admitted order, counted from the last request under it
-- Reply array: an answer; the order id of this request, or of the first one under this key
-- Answers 0 1 2 3 4 5 6 7 8 11 12, Errors BADARG IDTAKEN OTHERQTY: as in admit.lua
-- Error OTHERREQ: an earlier request under this key was another one
-- Written by `just lua` from lua/src/admit_by_key.lua: change that file, not this one
local function decide()
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
end
local span, digest, key = table.remove(ARGV), table.remove(ARGV), table.remove(KEYS)
local find, new = string.find, ARGV[1]
if not key or not find(span or '', '^[1-9]%d*$') or #span > 10 or not find(digest or '', '^%w+$')
  or #digest > 64 then
  return redis.error_reply('BADARG expected: after the other arguments a key, a digest, milliseconds')
end
local before, asked = string.match(redis.call('GET', key) or '', '^(%d+) (%w+)$')
if asked and asked ~= digest then
  return redis.error_reply('OTHERREQ an earlier request under this key was different')
end
local wanted = before or new
ARGV[1] = wanted
local decided = decide()
if before and type(decided) == 'table' and find(decided.err or '', '^%-?IDTAKEN ') then
  -- The order id stored under the key is another user's: the key now stands for the new id.
  before, wanted = nil, new
  ARGV[1] = wanted
  decided = decide()
end
if type(decided) == 'table' and decided.err then return decided end
-- A failed write of the key is no error: the order is admitted, and the caller must get that answer.
if decided == 0 or decided == 6 then
  if before then
    redis.pcall('PEXPIRE', key, span)
  else
    redis.pcall('SET', key, wanted .. ' ' .. digest, 'PX', span)
  end
end
return { decided, wanted }
