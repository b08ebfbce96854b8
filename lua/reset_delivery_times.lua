-- Gives entries that were delivered in the future a time of delivery of now: the clock was set back
-- meanwhile, and until it has caught up, nobody could claim them, dead as their consumer may be. Redis shows
-- such an entry as one that was delivered this very moment, for which the same does no harm. Owner and number
-- of deliveries stay as they are. Entries that were deleted or trimmed stay as they are: XCLAIM would drop
-- them from the pending list unseen.
-- KEYS[1] stream
-- ARGV[1] group: consumer group
-- ARGV[2] from: where to begin, as XPENDING takes it: '-', or '(' and the last id of the call before
-- ARGV[3] count: entries at most, 1 .. 1000
-- Reply array: last id, '' when there was none; how many were given another time
-- Written by `just lua` from lua/src/reset_delivery_times.lua: change that file, not this one
local stream = KEYS[1]
local group, from, count = ARGV[1], ARGV[2], ARGV[3]

local pending = redis.call('XPENDING', stream, group, from, '+', count)
local reset = 0
for _, entry in ipairs(pending) do
  local id, consumer, idle_ms = entry[1], entry[2], entry[3]
  if idle_ms == 0 and redis.call('XRANGE', stream, id, id)[1] then
    redis.call('XCLAIM', stream, group, consumer, 0, id, 'JUSTID')
    reset = reset + 1
  end
end
return { #pending > 0 and pending[#pending][1] or '', reset }
