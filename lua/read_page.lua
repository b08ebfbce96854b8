-- Reads entries of a stream in their order, until their number or their bytes are enough: XRANGE has no byte
-- limit, and large entries may follow small ones. Changes nothing.
-- KEYS[1] stream
-- ARGV[1] from; ARGV[2] to: as XRANGE takes them; ARGV[3] count: entries at most
-- ARGV[4] bytes: limit for all entries together (names, values, and 64 for each field); the first entry is
-- always read
-- Reply list: entries as XRANGE has them; empty: there are none
-- Written by `just lua` from lua/src/read_page.lua: change that file, not this one
local stream, from, to, count, bytes = KEYS[1], ARGV[1], ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
local FIELD_BYTES, MOST_AT_ONCE, SMALL = 64, 32, 16384
local entries, at_once = {}, 1

while #entries < count do
  local asked = math.min(at_once, count - #entries)
  local some = redis.call('XRANGE', stream, from, to, 'COUNT', asked)
  local weight = 0
  for _, entry in ipairs(some) do
    weight = weight + #entry[2] / 2 * FIELD_BYTES
    for _, value in ipairs(entry[2]) do weight = weight + #value end
    if weight > bytes and #entries > 0 then return entries end
    entries[#entries + 1] = entry
    from = '(' .. entry[1]
  end
  if #some < asked then break end
  bytes = bytes - weight
  at_once = weight <= at_once * SMALL and math.min(at_once * 2, MOST_AT_ONCE) or 1
end
return entries
