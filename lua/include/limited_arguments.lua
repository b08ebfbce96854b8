-- The arguments of an admission with limits, checked last, because most callers are refused before.
-- Reads: find; ARGV, stock, traceparent; known, by name whether a rule counts by this subject; bad, the text
-- of the error.
local values, first, last = ARGV, 1, 3
--- @include "ids"
local is_good = are_ids and #stock <= 13 and find(stock, '^%-?[1-9]%d*$') and #traceparent <= 128
for at = 6, #ARGV, 2 do
  local name, value = ARGV[at], ARGV[at + 1]
  is_good = is_good and #value <= 64 and find(value, '^[%w_.:+/=-]+$')
    and name ~= 'user' and known[name] ~= 0
    and (known[name] or #name <= 32 and find(name, '^%l[%l%d_]*$'))
  known[name] = 0
end
if not is_good then return redis.error_reply(bad) end
