-- Makes pending entries of a consumer claimable for all workers: the next scan of any worker claims these,
-- like entries that were idle for long. Owner and number of deliveries stay as they are. So an entry always
-- has one owner, the first worker that scans gets it, and nothing is lost if none comes. The time of
-- delivery marks such an entry: the first millisecond of 1970. Deleted or trimmed entries stay as they are:
-- XCLAIM would drop them from the pending list unseen, and scans find them anyway since Redis 7.
-- KEYS[1] stream
-- KEYS[2] heartbeat: string, exists while the process of this consumer lives; left out: acts even if it lives
-- ARGV[1] group: consumer group; ARGV[2] consumer: whose entries
-- ARGV[3] from: where to begin, as XPENDING takes it: '-', or '(' and the last id of the call before
-- ARGV[4] count: entries at most, 1 .. 1000
-- ARGV[5] young_ms: skips entries in progress (set_aside.lua) that were delivered less than this long ago: a
-- worker may be handling them, or their locks may still exist
-- Reply 0: the consumer lives; nothing was done
-- Reply array: last id, '' if there was none; how many were made claimable; claimable before; too young; and
-- without payload
-- Written by `just lua` from lua/src/make_claimable.lua: change that file, not this one
local stream, heartbeat = KEYS[1], KEYS[2]
local group, consumer, from, count, young_ms = ARGV[1], ARGV[2], ARGV[3], ARGV[4], tonumber(ARGV[5])
local TEN_YEARS_MS = 315360000000

if heartbeat and redis.call('EXISTS', heartbeat) == 1 then
  return 0
end
local held = redis.call('XPENDING', stream, group, from, '+', count, consumer)
local before, young, gone = 0, 0, 0
local claim = { 'XCLAIM', stream, group, consumer, 0 }
for _, entry in ipairs(held) do
  if not redis.call('XRANGE', stream, entry[1], entry[1])[1] then
    gone = gone + 1
  elseif entry[3] > TEN_YEARS_MS then
    before = before + 1
  elseif entry[3] < young_ms and entry[4] > 0 then
    young = young + 1
  else
    claim[#claim + 1] = entry[1]
  end
end
local offered = #claim - 5
if offered > 0 then
  for _, word in ipairs({ 'TIME', 1, 'JUSTID' }) do
    claim[#claim + 1] = word
  end
  redis.call(unpack(claim))
end
return { #held > 0 and held[#held][1] or '', offered, before, young, gone }
