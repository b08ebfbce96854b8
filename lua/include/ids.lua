-- The bounds of ids: 1 .. 2^63-1, decimal, no sign, no padding. Text, because doubles lose digits above
-- 2^53.
-- Reads: find; values, first, last: the texts values[first] .. values[last]. Defines: are_ids, whether all
-- are ids.
local are_ids = true
for at = first, last do
  local id = values[at]
  are_ids = are_ids and id and find(id, '^[1-9]%d*$')
    and (#id < 19 or #id == 19 and id <= '9223372036854775807')
end
