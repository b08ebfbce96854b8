-- Raises the counts for limits to what known orders hold, and never lowers them: for counters that Redis
-- lost. A count of a later window than the given one stays as it is.
-- KEYS[1] uses: hash, as in admit_limited.lua
-- ARGV[1] and all that follow, three for each of at most 500 fields: field, number of the window,
-- orders:units; or u:<user>, '', slots that the user holds, a bit each
-- Reply: how many fields were raised
-- Error BADARG: an argument is invalid
-- Written by `just lua` from lua/src/recount.lua: change that file, not this one
local uses = KEYS[1]
local call, find, match, max = redis.call, string.find, string.match, math.max
local is_good, writes = #KEYS == 1 and #ARGV <= 1500 and #ARGV % 3 == 0, {}
for at = 1, #ARGV, 3 do
  local is_count = find(ARGV[at + 1], '^%d+$') and find(ARGV[at + 2], '^%d+:%d+$')
  local is_slots = find(ARGV[at], '^u:[1-9]%d*$') and ARGV[at + 1] == '' and find(ARGV[at + 2], '^%d+$')
  is_good = is_good and (is_count or is_slots)
end
if not is_good then return redis.error_reply('BADARG expected: uses; field, window, counts of each') end
local function write(field, was, becomes)
  if becomes ~= was then writes[#writes + 1], writes[#writes + 2] = field, becomes end
end
for at = 1, #ARGV, 3 do
  local field, window, counts = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local was = call('HGET', uses, field) or ''
  if window == '' then
    local slots, bit = tonumber(counts), 1
    while bit <= 2 ^ 30 do
      local is_held = math.floor((tonumber(was) or 0) / bit) % 2 == 1
      if is_held and math.floor(slots / bit) % 2 == 0 then slots = slots + bit end
      bit = bit * 2
    end
    write(field, was, string.format('%d', slots))
  else
    local then_at, then_orders, then_units = match(was, '^(%d+):(%d+):(%d+)$')
    local orders, units = match(counts, '^(%d+):(%d+)$')
    if not then_at or tonumber(window) > tonumber(then_at) then
      write(field, was, window .. ':' .. counts)
    elseif then_at == window then
      write(field, was, string.format('%s:%d:%d', window, max(orders, then_orders), max(units, then_units)))
    end
  end
end
if #writes > 0 then call('HSET', uses, unpack(writes)) end
return #writes / 2
