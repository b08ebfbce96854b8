-- Compacts final movements into one movement of the whole sale, #purged, in one step: the sum of the journal
-- stays the same. Other movements get a shorter note. It changes only an order whose note is still the one
-- that was read, byte for byte: the same call again compacts nothing.
-- KEYS[1] journal: hash, order id -> stock movement as JSON
-- ARGV[1] before: only older movements are compacted, in Unix milliseconds
-- Then of each order, at most 500: ARGV[2] order id; ARGV[3] found: the note that was read; ARGV[4] becomes:
-- its shorter note, or '' to compact it; ARGV[5] units of the order; ARGV[6] change: what it adds to the sum
-- Reply array: compacted releases; compacted admissions (used); shortened: how many orders of each kind
-- Reply 1: refused, the journal is not complete
-- Error BADARG: an argument is invalid, or #purged has an unknown form
-- Written by `just lua` from lua/src/compact.lua: change that file, not this one
local journal, before = KEYS[1], ARGV[1]
local call, find = redis.call, string.find
local function is_number(text) return #text <= 14 and (text == '0' or find(text, '^%-?[1-9]%d*$')) end
local is_good = #KEYS == 1 and #ARGV >= 6 and #ARGV <= 2501 and #ARGV % 5 == 1 and is_number(before)
local orders, gone, kept, seen, sum = {}, {}, {}, {}, {}
for at = 2, #ARGV, 5 do
  is_good = is_good and find(ARGV[at], '^[1-9]%d*$') and is_number(ARGV[at + 3]) and is_number(ARGV[at + 4])
  orders[#orders + 1] = ARGV[at]
end
local is_complete, purged = unpack(call('HMGET', journal, '#complete', '#purged'))
local names = { 'change', 'released_orders', 'released_units', 'used_orders', 'used_units', 'before' }
for _, name in ipairs(names) do
  sum[name] = tonumber(purged and string.match(purged, '"' .. name .. '":(%-?%d+)') or not purged and '0')
  is_good = is_good and sum[name]
end
if not is_good then
  return redis.error_reply('BADARG expected: a journal, before, 5 arguments an order, counts in #purged')
end
if not is_complete then return 1 end
local notes = call('HMGET', journal, unpack(orders))
local time = call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
local shortened, released, used = 0, 0, 0
local function add(name, units) sum[name] = sum[name] + units end
local function compact(order, found, becomes, units, change)
  seen[order] = true
  if becomes ~= '' then
    kept[#kept + 1], kept[#kept + 2] = order, becomes
    shortened = shortened + 1
    return
  end
  if find(found, '"action":"release"', 1, true) then
    released = released + 1
    add('released_units', units)
  else
    used = used + 1
    add('used_units', units)
  end
  add('change', change)
  gone[#gone + 1] = order
end
for n, order in ipairs(orders) do
  local at = 5 * n - 3
  if notes[n] == ARGV[at + 1] and not seen[order] then compact(unpack(ARGV, at, at + 4)) end
end
add('released_orders', released)
add('used_orders', used)
if #gone > 0 then
  local note = string.format('{"action":"purge","change":%.0f,"by":"compact","timestamp":%s,'
    .. '"released_orders":%.0f,"released_units":%.0f,"used_orders":%.0f,"used_units":%.0f,"before":%.0f}',
    sum.change, now_ms, sum.released_orders, sum.released_units, sum.used_orders, sum.used_units,
    math.max(sum.before, tonumber(before)))
  kept[#kept + 1], kept[#kept + 2] = '#purged', note
end
if #kept > 0 then call('HSET', journal, unpack(kept)) end -- first: it is refused if memory is short
if #gone > 0 then call('HDEL', journal, unpack(gone)) end
return { released, used, shortened }
