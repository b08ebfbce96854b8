-- Sets the counts for limits to what orders hold, but only for fields that still hold the value that was
-- read.
-- KEYS[1] uses: hash, as in admit_limited.lua
-- ARGV[1] and all that follow, three for each of at most 300 fields: field; the value that was read, '' for
-- none; the value that it gets, '' for none: window:orders:units, or the slots of a field u:<user>
-- Reply list: for each field 1 if it was set, 0 if it has another value by now
-- Error BADARG: an argument is invalid
-- Written by `just lua` from lua/src/set_uses.lua: change that file, not this one
local uses, call = KEYS[1], redis.call
local is_good = #KEYS == 1 and #ARGV <= 900 and #ARGV % 3 == 0
for at = 3, #ARGV, 3 do
  local value = ARGV[at]
  is_good = is_good and (value == '' or string.find(value, '^%d+$') or string.find(value, '^%d+:%d+:%d+$'))
end
if not is_good then return redis.error_reply('BADARG expected: uses; field, found, becomes of each') end
local answers, writes, ends = {}, {}, {}
for at = 1, #ARGV, 3 do
  local field, found, becomes = ARGV[at], ARGV[at + 1], ARGV[at + 2]
  local is_same = (call('HGET', uses, field) or '') == found
  answers[#answers + 1] = is_same and 1 or 0
  if is_same and becomes ~= '' then
    writes[#writes + 1], writes[#writes + 2] = field, becomes
  elseif is_same and found ~= '' then
    ends[#ends + 1] = field
  end
end
-- HSET comes first: it is refused if memory is short.
if #writes > 0 then call('HSET', uses, unpack(writes)) end
if #ends > 0 then call('HDEL', uses, unpack(ends)) end
return answers
