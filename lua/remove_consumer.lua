-- Removes a consumer that is dead and holds no entries. XGROUP DELCONSUMER would remove pending entries with
-- it for good, so the check and the removal are one step.
-- KEYS[1] stream
-- KEYS[2] heartbeat: string, exists while the process of this consumer lives
-- ARGV[1] group: consumer group; ARGV[2] consumer: the one to remove
-- ARGV[3] idle_ms: only if it has been idle for this long
-- Reply 1: removed
-- Reply 0: alive, idle for too short a time, holds entries, or does not exist
-- Written by `just lua` from lua/src/remove_consumer.lua: change that file, not this one
local stream, heartbeat = KEYS[1], KEYS[2]
local group, consumer, idle_ms = ARGV[1], ARGV[2], tonumber(ARGV[3])

if redis.call('EXISTS', heartbeat) == 1 then
  return 0
end
for _, info in ipairs(redis.call('XINFO', 'CONSUMERS', stream, group)) do
  local it = {}
  for at = 1, #info, 2 do
    it[info[at]] = info[at + 1]
  end
  if it.name == consumer then
    if it.pending > 0 or it.idle < idle_ms then
      return 0
    end
    redis.call('XGROUP', 'DELCONSUMER', stream, group, consumer)
    return 1
  end
end
return 0
