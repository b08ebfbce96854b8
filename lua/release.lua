-- Releases one order, once: raises the stock, frees the user, turns its journal entry into a release.
-- Only for orders that will not be written (refused, buried): the worker does not check the journal. The
-- note keeps what the order held: "admitted", with user, change, timestamp and from of the admission. If the
-- journal is complete, only an order that it holds as admitted is released. Otherwise, orders that were
-- admitted without a journal are released, too. An error leaves no trace.
-- KEYS[1] stock: string, units left, at most 13 digits; never created here: it would be wrong
-- KEYS[2] buyers: set of the users who were admitted
-- KEYS[3] journal: hash, order id -> stock movement as JSON; from and to are null if no stock is loaded
-- ARGV[1] order id, ARGV[2] user id: each 1 .. 2^63-1, decimal, no sign, no padding
-- ARGV[3] units: to release, 0 .. 10000
-- ARGV[4] free: '1' lets the user order again, '0' does not
-- ARGV[5] by: the one who releases, like worker:out_of_stock; 1 .. 64 letters, digits and _.:-
-- Reply 0: was released before, nothing changed
-- Reply 1: released now
-- Reply 2: released now, but no stock is loaded, so no unit was raised
-- Reply 3: the journal is complete and does not hold the order as admitted; nothing changed
-- Reply 4: no key of the sale exists (it was delisted, or Redis lost it); nothing changed, none is created
-- Error BADARG: an argument or the stock is invalid
-- Error IDTAKEN: the order id belongs to an order of another user
-- Error LIMITED: the voucher has limits, or had them when the order was admitted: ask release_limited.lua
-- Written by `just lua` from lua/src/release.lua: change that file, not this one
local stock_key, buyers, journal = KEYS[1], KEYS[2], KEYS[3]
local order, user, units, free, by = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local call, find = redis.call, string.find
local values, first, last = ARGV, 1, 2
local are_ids = true
for at = first, last do
  local id = values[at] or ''
  if not find(id, '^[1-9]%d*$') or #id > 18 and (#id > 19 or id > '9223372036854775807') then
    are_ids = false
  end
end
if #KEYS ~= 3 or #ARGV ~= 5 or not are_ids
  or units ~= '0' and (not find(units, '^[1-9]%d?%d?%d?%d?$') or tonumber(units) > 10000)
  or free ~= '0' and free ~= '1'
  or not find(by, '^[%w_.:-]+$') or #by > 64 then
  return redis.error_reply('BADARG expected: 3 keys, order id, user id, units, 0 or 1, by')
end
local entry, is_complete, is_limited = unpack(call('HMGET', journal, order, '#complete', '#limited'))
if entry and find(entry, '"action":"release"', 1, true) then return 0 end
if is_limited or entry and find(entry, '"uses":"', 1, true) then
  return redis.error_reply('LIMITED the voucher has or had limits: call release_limited.lua')
end
local taken = entry and not find(entry, '"by":"' .. user .. '"', 1, true)
  and 'IDTAKEN the order id belongs to an order of another user'
if taken then return redis.error_reply(taken) end
local admitted, admitted_ms =
  string.match(entry or '', '"action":"admit".*"change":(%-?%d+).*"timestamp":(%d+)')
if is_complete and not admitted then return 3 end
local stock, change = call('GET', stock_key), tonumber(units)
if not (stock or entry) and call('EXISTS', buyers, journal) == 0 then return 4 end
if stock and (#stock > 13 or stock ~= '0' and not find(stock, '^%-?[1-9]%d*$')) then
  return redis.error_reply('BADARG the stock is not a number')
end
call('SISMEMBER', buyers, user) -- fails on a key of another type before anything is written
local time = call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
local note = '{"action":"release","from":' .. (stock or 'null') .. ',"to":'
  .. (stock and stock + change or 'null') .. ',"change":' .. (stock and change or 0) .. ',"by":"' .. by
  .. '","timestamp":' .. now_ms
if admitted then
  note = note .. ',"admitted":{"user":"' .. user .. '","change":' .. admitted .. ',"timestamp":'
    .. admitted_ms .. ',"from":' .. (string.match(entry, '"from":(%-?%d+)') or 'null') .. '}'
end
note = note .. '}'
-- The first write: HSET is refused if memory is short, SREM would not be.
call('HSET', journal, order, note)
if free == '1' then call('SREM', buyers, user) end
if stock and change > 0 then call('INCRBY', stock_key, units) end
if not stock and change > 0 then return 2 end
return 1
