-- Sets the time of delivery to now for entries that were delivered in the future. After the clock was set
-- back, no worker could claim them until it has caught up, even if their consumer is dead. Redis shows such
-- an entry like one that was delivered in this very millisecond, for which the change does no harm. Owner
-- and number of deliveries stay as they are. Deleted or trimmed entries stay as they are: XCLAIM would drop
-- them from the pending list unseen.
-- KEYS[1] stream
-- ARGV[1] group: consumer group
-- ARGV[2] from: where to begin, as XPENDING takes it: '-', or '(' and the last id of the call before
-- ARGV[3] count: entries at most, 1 .. 1000
-- Reply array: last id, '' if there was none; how many delivery times were set
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
