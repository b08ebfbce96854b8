-- Resets the idle time of entries that a consumer has in progress or has set aside, so that nobody claims them.
-- Entries that were settled or claimed by others meanwhile are not touched, and no delivery is counted.
-- Neither are those that an operator has offered to all (make_claimable.lua), nor those that were deleted or trimmed:
-- XCLAIM would drop them from the pending list, and with them the certainty that they are finished or found
-- again.
-- KEYS[1] stream
-- ARGV[1] group: consumer group; ARGV[2] consumer: whose entries
-- ARGV[3] from: where to begin, as XPENDING takes it: an id, or '(' and the last id of the call before
-- ARGV[4] last: largest entry id; ARGV[5] count: entries at most, 1 .. 5000
-- Reply 0: none of them is this consumer's any more
-- Reply array: id of the last one that was looked at; number of those that were kept
local stream = KEYS[1]
local group, consumer, from, last, count = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local TEN_YEARS_MS = 315360000000

local mine = redis.call('XPENDING', stream, group, from, last, count, consumer)
if #mine == 0 then
  return 0
end
local claim = { 'XCLAIM', stream, group, consumer, 0 }
for _, entry in ipairs(mine) do
  if entry[3] <= TEN_YEARS_MS and redis.call('XRANGE', stream, entry[1], entry[1])[1] then
    claim[#claim + 1] = entry[1]
  end
end
if #claim > 5 then
  claim[#claim + 1] = 'JUSTID'
  redis.call(unpack(claim))
end
return { mine[#mine][1], math.max(#claim - 6, 0) }
