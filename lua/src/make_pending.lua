-- Makes acknowledged entries pending again, all or none, and notes the time, so that workers read the list
-- of pending entries again (GroupInspector::made_pending). No lane has these entries in progress.
-- KEYS[1] stream; KEYS[2] crashes: hash; its field `made_pending` is the time of the last call
-- ARGV[1] group: consumer group; ARGV[2] consumer: the one that holds them from then on
-- ARGV[3] and all that follow: entry ids, of entries that are in the stream
-- Reply: number of entries that are pending now
local stream, crashes, group, consumer = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local KEEP_CRASHES_MS, IDS_A_CALL = 604800000, 1000

local now = redis.call('TIME')
-- The first write is one that a memory limit refuses.
redis.call('HSET', crashes, 'made_pending', now[1] .. '.' .. now[2])
redis.call('PEXPIRE', crashes, KEEP_CRASHES_MS)
local pending = 0
for from = 3, #ARGV, IDS_A_CALL do
  local claim = { 'XCLAIM', stream, group, consumer, 0 }
  for at = from, math.min(from + IDS_A_CALL - 1, #ARGV) do claim[#claim + 1] = ARGV[at] end
  for _, word in ipairs({ 'RETRYCOUNT', 0, 'FORCE', 'JUSTID' }) do claim[#claim + 1] = word end
  pending = pending + #redis.call(unpack(claim))
end
return pending
