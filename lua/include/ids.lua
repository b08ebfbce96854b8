-- The bounds of ids: 1 .. 2^63-1, decimal, no sign, no padding. Ids are compared as text, because doubles
-- lose digits above 2^53.
-- Reads: find; values, first, last: the texts values[first] .. values[last]. Defines: are_ids, whether all
-- are ids.
local are_ids = true
for at = first, last do
  local id = values[at] or ''
  if not find(id, '^[1-9]%d*$') or #id > 18 and (#id > 19 or id > '9223372036854775807') then
    are_ids = false
  end
end
