-- Raises the number that shows whether Redis went back in time. Whoever comes late with a lower one changes
-- nothing.
-- KEYS[1] mark: string, a whole number below 2^53; missing: 0
-- ARGV[1] confirmed: what Redis had once, at least
-- ARGV[2] to: the new number
-- Reply below confirmed: what is there; Redis went back in time, nothing was done
-- Reply otherwise: what is there now, `to` or more
local confirmed, to = tonumber(ARGV[1]), tonumber(ARGV[2])
local mark = tonumber(redis.call('GET', KEYS[1]) or 0) or 0
if mark < confirmed then return mark end
if mark >= to then return mark end
redis.call('SET', KEYS[1], ARGV[2])
return to
