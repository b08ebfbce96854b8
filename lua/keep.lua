-- Resets the idle time of entries that a consumer still works on, so that nobody claims them. Entries
-- that were settled or claimed by others meanwhile are not touched, and no delivery is counted. Neither are
-- entries that were deleted or trimmed: XCLAIM would drop them from the pending list, and with them the
-- certainty that what is in hand is finished or found again.
-- KEYS[1] stream
-- ARGV[1] group: consumer group; ARGV[2] consumer: who works on them
-- ARGV[3] first, ARGV[4] last: smallest and largest entry id of the batch in hand
-- ARGV[5] count: entries at most, 1 .. 5000
-- Reply 0: none of them is this consumer's any more
-- Reply above 0: how many still are
local stream = KEYS[1]
local group, consumer, first, last, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]

local mine = redis.call('XPENDING', stream, group, first, last, count, consumer)
if #mine == 0 then
  return 0
end
local claim = { 'XCLAIM', stream, group, consumer, 0 }
for _, entry in ipairs(mine) do
  if redis.call('XRANGE', stream, entry[1], entry[1])[1] then
    claim[#claim + 1] = entry[1]
  end
end
if #claim > 5 then
  claim[#claim + 1] = 'JUSTID'
  redis.call(unpack(claim))
end
return #mine
