-- Replaces the keys of a sale by the keys that a rebuild has filled, in one step, while the sale goes on. It
-- first adds orders that came into the stream since the rebuild read it. A pause stays. A refusal changes
-- nothing of the sale.
-- KEYS[1] stock: string, units left; KEYS[2] buyers: set; KEYS[3] voucher: hash of, among others, begin_ms,
-- end_ms and change (the note of lua/adjust_stock.lua); KEYS[4] journal: hash; KEYS[5] stream: the orders
-- KEYS[6] staged buyers: set, missing if there are none; KEYS[7] staged journal: hash; KEYS[8] stock: under
-- the name that it must not have, with or without limits
-- ARGV[1] last: id of the entry up to which the stream was read; ARGV[2] most: entries that may be added
-- ARGV[3] units: the stock at that entry; ARGV[4] voucher id
-- ARGV[5] members, ARGV[6] fields: the sizes of the staged set and the staged hash, to see that none was
-- lost
-- ARGV[7] change: the present note, '' for none; ARGV[8] begin_ms, ARGV[9] end_ms: '' for no bound
-- ARGV[10] order, ARGV[11] user, ARGV[12] voucher, ARGV[13] quantity: names of these fields in entries
-- ARGV[14], ARGV[15], ARGV[16], ARGV[17]: these names in lua/admit.lua, for entries that lack the others
-- Reply 0: done
-- Reply 1: refused, more entries came than may be added: read on
-- Reply 2: refused, the voucher has another note
-- Reply 3: refused, the staged keys are not complete: Redis lost data, or the call was done before
-- Error BADARG: an argument is invalid
-- Written by `just lua` from lua/src/cut_over.lua: change that file, not this one
local stock, buyers, sale_key, journal, stream = unpack(KEYS, 1, 5)
local staged_buyers, staged_journal, other_stock = unpack(KEYS, 6, 8)
local last_id, most, begin_units, voucher, members, fields, change, begin_ms, end_ms = unpack(ARGV, 1, 9)
local names = { unpack(ARGV, 10, 13) }
local other_names = { unpack(ARGV, 14, 17) }
local call, find = redis.call, string.find
local units = tonumber(begin_units)
if #KEYS ~= 8 or #ARGV ~= 17 or not units or not find(begin_units, '^%-?%d+$') or #begin_units > 14 then
  return redis.error_reply('BADARG expected: 8 keys, last, most, units, voucher, counts, note, window, names')
end
if call('SCARD', staged_buyers) ~= tonumber(members) then return 3 end
if call('HLEN', staged_journal) ~= tonumber(fields) then return 3 end
if (call('HGET', sale_key, 'change') or '') ~= change then return 2 end
local entries = call('XRANGE', stream, '(' .. last_id, '+', 'COUNT', tonumber(most) + 1)
if #entries > tonumber(most) then return 1 end
-- HSET comes first: it is refused if memory is short.
call('HSET', staged_journal, '#load', call('HGET', staged_journal, '#load'))
for _, entry in ipairs(entries) do
  local value, found = {}, {}
  for at = 1, #entry[2], 2 do value[entry[2][at]] = entry[2][at + 1] end
  for at = 1, 4 do found[at] = value[names[at]] or value[other_names[at]] end
  local order, user, quantity = found[1], found[2], found[4] or '1'
  local values, first, last = found, 1, 2
  local are_ids = true
  for at = first, last do
    local id = values[at] or ''
    if not find(id, '^[1-9]%d*$') or #id > 18 and (#id > 19 or id > '9223372036854775807') then
      are_ids = false
    end
  end
  local is_ours = not value.event and found[3] == voucher and are_ids
  if is_ours and find(quantity, '^[1-9]%d?%d?%d?%d?$') and tonumber(quantity) <= 10000 then
    local note = '{"action":"admit","from":null,"to":null,"change":-' .. quantity .. ',"by":"' .. user
      .. '","timestamp":' .. string.match(entry[1], '^%d+')
    local has_limits = find(value.uses or '-', '^[%w_.:+/=, -]*$') and find(value.slot or '1', '^[1-9]%d?$')
    if value.uses and has_limits then
      note = note .. ',"slot":' .. (value.slot or 1) .. ',"uses":"' .. value.uses .. '"'
    end
    if call('HSETNX', staged_journal, order, note .. '}') == 1 then
      units = units - quantity
      call('SADD', staged_buyers, user)
    end
  end
end
call('SET', stock, string.format('%d', units))
for field, value in pairs({ begin_ms = begin_ms, end_ms = end_ms }) do
  if value == '' then
    call('HDEL', sale_key, field)
  else
    call('HSET', sale_key, field, value)
  end
end
call('UNLINK', buyers, journal, other_stock)
call('RENAME', staged_journal, journal)
call('PERSIST', journal)
if call('EXISTS', staged_buyers) == 1 then
  call('RENAME', staged_buyers, buyers)
  call('PERSIST', buyers)
end
return 0
