-- Raises the number that shows whether Redis went back in time. Whoever comes late with a lower one changes
-- nothing.
-- KEYS[1] mark: string, a whole number below 2^53; missing: 0
-- ARGV[1] confirmed: what Redis had once, at least
-- ARGV[2] to: the new number
-- Reply below confirmed: what is there; Redis went back in time, nothing was done
-- Reply otherwise: what is there now, `to` or more
-- Written by `just lua` from lua/src/raise_mark.lua: change that file, not this one
local mark_key, confirmed, to = KEYS[1], ARGV[1], ARGV[2]
local mark = tonumber(redis.call('GET', mark_key) or 0) or 0
if mark < tonumber(confirmed) then return mark end
if mark >= tonumber(to) then return mark end
redis.call('SET', mark_key, to)
return tonumber(to)
