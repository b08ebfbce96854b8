-- Puts what a rebuild has filled in the place of a sale's keys, in one step, while the sale goes on: orders
-- that came into the stream since the rebuild has read it are added first. A pause stays. A refusal changes
-- nothing of the sale.
-- KEYS[1] stock: string, units left; KEYS[2] buyers: set; KEYS[3] voucher: hash of, among others, begin_ms,
-- end_ms and change (the note of lua/restock.lua); KEYS[4] journal: hash; KEYS[5] stream: the orders
-- KEYS[6] staged buyers: set, missing where there are none; KEYS[7] staged journal: hash; KEYS[8] stock:
-- under the name that it must not have, with or without limits
-- ARGV[1] last: id of the entry up to which the stream was read; ARGV[2] most: entries that may be added
-- ARGV[3] units: the stock as of then; ARGV[4] voucher id
-- ARGV[5] members, ARGV[6] fields: how many the staged set and the staged hash have, so that none was lost
-- ARGV[7] change: the note that stands there, '' for none; ARGV[8] begin_ms, ARGV[9] end_ms: '' for no bound
-- ARGV[10] order, ARGV[11] user, ARGV[12] voucher, ARGV[13] quantity: names of these fields in entries
-- ARGV[14], ARGV[15], ARGV[16], ARGV[17]: these names in lua/admit.lua, for entries that lack the others
-- Reply 0: done
-- Reply 1: refused, more entries came: read on
-- Reply 2: refused, another note stands there
-- Reply 3: refused, what was filled is not all there: Redis lost it, or the call was done before
-- Error BADARG: an argument is not what it must be
local call, find, units = redis.call, string.find, tonumber(ARGV[3])
if #KEYS ~= 8 or #ARGV ~= 17 or not units or not find(ARGV[3], '^%-?%d+$') or #ARGV[3] > 14 then
  return redis.error_reply('BADARG wanted: 8 keys, last, most, units, voucher, counts, note, window, names')
end
if call('SCARD', KEYS[6]) ~= tonumber(ARGV[5]) or call('HLEN', KEYS[7]) ~= tonumber(ARGV[6]) then return 3 end
if (call('HGET', KEYS[3], 'change') or '') ~= ARGV[7] then return 2 end
local most, id, max = tonumber(ARGV[2]), '^[1-9]%d*$', '9223372036854775807'
local entries = call('XRANGE', KEYS[5], '(' .. ARGV[1], '+', 'COUNT', most + 1)
if #entries > most then return 1 end
local function is_id(text) return text and find(text, id) and (#text < 19 or #text == 19 and text <= max) end
local begin_ms, end_ms = ARGV[8], ARGV[9]
-- HSET comes first: it is refused when memory is short.
call('HSET', KEYS[7], '#load', call('HGET', KEYS[7], '#load'))
for _, entry in ipairs(entries) do
  local value = {}
  for at = 1, #entry[2], 2 do value[entry[2][at]] = entry[2][at + 1] end
  local function field(at) return value[ARGV[at]] or value[ARGV[at + 4]] end
  local order, user, quantity = field(10), field(11), field(13) or '1'
  local is_ours = not value.event and field(12) == ARGV[4] and is_id(order) and is_id(user)
  if is_ours and find(quantity, '^[1-9]%d?%d?%d?%d?$') and tonumber(quantity) <= 10000 then
    local limited, slot = find(value.uses or '-', '^[%w_.:+/=, -]*$'), find(value.slot or '1', '^[1-9]%d?$')
    local note = '{"action":"admit","from":null,"to":null,"change":-' .. quantity .. ',"by":"' .. user
      .. '","timestamp":' .. string.match(entry[1], '^%d+') .. (value.uses and limited and slot
      and ',"slot":' .. (value.slot or 1) .. ',"uses":"' .. value.uses .. '"' or '') .. '}'
    if call('HSETNX', KEYS[7], order, note) == 1 then
      units = units - quantity
      call('SADD', KEYS[6], user)
    end
  end
end
call('SET', KEYS[1], string.format('%d', units))
for name, value in pairs({ begin_ms = begin_ms, end_ms = end_ms }) do
  if value == '' then call('HDEL', KEYS[3], name) else call('HSET', KEYS[3], name, value) end
end
call('UNLINK', KEYS[2], KEYS[4], KEYS[8])
call('RENAME', KEYS[7], KEYS[4])
call('PERSIST', KEYS[4])
if call('EXISTS', KEYS[6]) == 1 then call('RENAME', KEYS[6], KEYS[2]) call('PERSIST', KEYS[2]) end
return 0
