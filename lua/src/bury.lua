-- Copies one entry to the dead stream and acknowledges it, but only while the entry is pending. If another
-- worker has settled it, or the call is sent twice, nothing happens. XADD comes first: if it fails (wrong
-- type, memory limit), the entry stays pending. The fields come from the caller, who has read them: the
-- entry itself may be trimmed by now.
-- A dead letter holds the fields byte for byte, in their order, then dead:entry, dead:reason, dead:error,
-- dead:consumer, dead:deliveries and dead:at_ms. Above 2000 fields, one field dead:fields replaces them: the
-- array [name, value, name, value, ...] as cjson writes it, which is JSON except for bytes that are not
-- UTF-8. The same happens if the first field has that very name, so that the name has only one meaning.
-- KEYS[1] stream: where the entry is pending
-- KEYS[2] dead: stream of the dead letters
-- KEYS[3] heartbeat: string, exists while the process of the consumer lives; only if another process buries
-- ARGV[1] group: consumer group; ARGV[2] id: of the entry
-- ARGV[3] reason: a word that says why, for programs; ARGV[4] error: a sentence that says why, for people
-- ARGV[5] consumer: only while it holds the entry; checked only together with its heartbeat
-- ARGV[6] run: run_id, as INFO has it, of the server that handed the entry over; '': any
-- ARGV[7] and all that follow: name, value, name, value, ... of the entry; none: as in the stream
-- Reply 1: buried: copied and acknowledged
-- Reply 0: not pending any more, or its payload must be copied and is gone; nothing was done
-- Reply 2: the consumer lives and may be handling it, or another one holds it by now; nothing was done
-- Error OTHERRUN: another server, or this one after a restart; nothing was done (settle.lua says why)
local stream, dead, heartbeat = KEYS[1], KEYS[2], KEYS[3]
local group, id, reason, error_text, consumer, run = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local call = redis.call
local MOST_VALUES = 4000 -- Lua's unpack has a limit of about 8000

if run ~= '' and string.match(call('INFO', 'server'), 'run_id:(%x+)') ~= run then
  return redis.error_reply('OTHERRUN this entry was read from another server')
end
local pending = call('XPENDING', stream, group, id, id, 1)[1]
if not pending then
  return 0
end
if heartbeat and (pending[2] ~= consumer or call('EXISTS', heartbeat) == 1) then
  return 2
end

local letter = {}
for at = 7, #ARGV do
  letter[#letter + 1] = ARGV[at]
end
if #letter == 0 then
  local entry = call('XRANGE', stream, id, id)[1]
  if not entry then return 0 end
  letter = entry[2]
end
if #letter > MOST_VALUES or letter[1] == 'dead:fields' then
  letter = { 'dead:fields', cjson.encode(letter) }
end
--- @include "time"
local about = {
  'dead:entry', id, 'dead:reason', reason, 'dead:error', error_text, 'dead:consumer', pending[2],
  'dead:deliveries', pending[4], 'dead:at_ms', now_ms,
}
for _, value in ipairs(about) do
  letter[#letter + 1] = value
end
call('XADD', dead, '*', unpack(letter))
call('XACK', stream, group, id)
return 1
