-- Resets the idle time of entries that a consumer has in progress or has set aside, so that no other
-- consumer claims them. It counts no delivery. It does not touch entries that were settled, or claimed by
-- others, and none that an operator has made claimable for all workers (make_claimable.lua). It does not
-- touch deleted or trimmed entries either. XCLAIM would drop these from the pending list, and with them the
-- certainty that they are finished or found again.
-- KEYS[1] stream
-- ARGV[1] group: consumer group; ARGV[2] consumer: whose entries
-- ARGV[3] from: where to begin, as XPENDING takes it: an id, or '(' and the last id of the call before
-- ARGV[4] last: largest entry id; ARGV[5] count: entries at most, 1 .. 5000
-- Reply 0: the consumer holds none of these entries any more
-- Reply array: id of the last entry that was checked; number of entries whose idle time was reset
-- Written by `just lua` from lua/src/keepalive.lua: change that file, not this one
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
