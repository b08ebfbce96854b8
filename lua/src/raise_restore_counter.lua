-- Raises the number that shows whether Redis went back in time. A late call with a lower number changes
-- nothing.
-- KEYS[1] counter: string, a whole number below 2^53; missing: 0
-- ARGV[1] confirmed: a number that Redis has reached before
-- ARGV[2] to: the new number
-- Reply below confirmed: the present number; Redis went back in time, nothing was done
-- Reply otherwise: the number after the call, `to` or more
local counter_key, confirmed, to = KEYS[1], ARGV[1], ARGV[2]
local counter = tonumber(redis.call('GET', counter_key) or 0) or 0
if counter < tonumber(confirmed) then return counter end
if counter >= tonumber(to) then return counter end
redis.call('SET', counter_key, to)
return tonumber(to)
