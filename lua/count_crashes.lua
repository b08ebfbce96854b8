-- Counts a crash of each pending entry that a process of this consumer had in progress when it died. It also
-- sets the number of deliveries to 0 until the entry is handed over again: no process has it in progress. So
-- a second call, or a restart after a lost connection, counts no crash twice. Entries of other consumers,
-- and deleted or trimmed ones, stay as they are. Without memory for a note, or if notes cannot be read or
-- written (another type, no permission), crashes go uncounted.
-- KEYS[1] stream; KEYS[2] crashes: hash, entry id -> number of crashes; absent if this user may not use it
-- ARGV[1] group: consumer group; ARGV[2] consumer: whose entries
-- ARGV[3] and all that follow: entry ids, at most 2000
-- Reply 0: none of these entries was in progress
-- Reply above 0: the number of entries that were in progress
-- Written by `just lua` from lua/src/count_crashes.lua: change that file, not this one
local stream, crashes, group, consumer = KEYS[1], KEYS[2], ARGV[1], ARGV[2]
local KEEP_CRASHES_MS = 604800000

local claim, counted = { 'XCLAIM', stream, group, consumer, 0 }, {}
for at = 3, #ARGV do
  local id = ARGV[at]
  local held = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if held and held[2] == consumer and held[4] > 0 and redis.call('XRANGE', stream, id, id)[1] then
    local note = crashes and redis.pcall('HGET', crashes, id) -- an error is a table
    local died = type(note) == 'string' and tonumber(string.match(note, '^%d+')) or 0
    counted[#counted + 1], counted[#counted + 2] = id, died + 1
    claim[#claim + 1] = id
  end
end
local count = #claim - 5
if count == 0 then
  return 0
end
if crashes and type(redis.pcall('HSET', crashes, unpack(counted))) == 'number' then -- or memory is short
  redis.pcall('PEXPIRE', crashes, KEEP_CRASHES_MS)
end
for _, word in ipairs({ 'RETRYCOUNT', 0, 'JUSTID' }) do
  claim[#claim + 1] = word
end
redis.call(unpack(claim))
return count
