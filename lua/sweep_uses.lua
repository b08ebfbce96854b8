-- Deletes the counts of windows that are over, but only fields that still hold the value that was read.
-- KEYS[1] uses: hash, as in admit_limited.lua
-- ARGV[1] and all that follow, two for each field, at most 500: field, the value that was read
-- Reply: how many fields were deleted
-- Error BADARG: an argument is invalid
-- Written by `just lua` from lua/src/sweep_uses.lua: change that file, not this one
local uses, call = KEYS[1], redis.call
if #KEYS ~= 1 or #ARGV > 1000 or #ARGV % 2 ~= 0 then
  return redis.error_reply('BADARG expected: uses; field and value of each')
end
local gone = {}
for at = 1, #ARGV, 2 do
  if call('HGET', uses, ARGV[at]) == ARGV[at + 1] then gone[#gone + 1] = ARGV[at] end
end
if #gone > 0 then call('HDEL', uses, unpack(gone)) end
return #gone
