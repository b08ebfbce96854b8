-- Acknowledges entries, if this is the server that they were read from, in the same run. After a failover
-- two servers may have given one id to different entries: entries of another server must not settle ours.
-- KEYS[1] stream
-- ARGV[1] group: consumer group; ARGV[2] run: run_id, as INFO has it, of the server that handed them over
-- ARGV[3] and all that follow: entry ids, at most 5000
-- Reply: the number of entries that were pending until now
-- Error OTHERRUN: another server, or this one after a restart; nothing was done
local stream, group, run = KEYS[1], ARGV[1], ARGV[2]

if string.match(redis.call('INFO', 'server'), 'run_id:(%x+)') ~= run then
  return redis.error_reply('OTHERRUN these entries were read from another server')
end
return redis.call('XACK', stream, group, unpack(ARGV, 3))
