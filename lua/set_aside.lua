-- Notes that a consumer does not have these pending entries in progress any more, but keeps them: their
-- number of deliveries is 0 until they are handed over again. If it is 1 or more after a crash, the process
-- had the entry in progress. Entries of other consumers, and deleted or trimmed ones, stay as they are.
-- KEYS[1] stream
-- ARGV[1] group: consumer group; ARGV[2] consumer: whose entries
-- ARGV[3] and all that follow: entry ids, ascending, at most 5000
-- Reply 0: the consumer holds none of these entries
-- Reply above 0: the number of entries that it holds
-- Written by `just lua` from lua/src/set_aside.lua: change that file, not this one
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]
local call = redis.call

-- One call returns all of them, unless many other entries of the consumer lie in between.
local most, ids, rows = 2 * (#ARGV - 2), {}, {}
local found = call('XPENDING', stream, group, ARGV[3], ARGV[#ARGV], most, consumer)
for _, row in ipairs(found) do rows[row[1]] = row end
for at = 3, #ARGV do
  local id = ARGV[at]
  if rows[id] or #found == most and call('XPENDING', stream, group, id, id, 1, consumer)[1] then
    ids[#ids + 1] = id
  end
end
if not ids[1] then
  return 0
end

local function is_before(one, other)
  local ms, seq = string.match(one, '(%d+)-(%d+)')
  local other_ms, other_seq = string.match(other, '(%d+)-(%d+)')
  if ms ~= other_ms then seq, other_seq = ms, other_ms end
  return #seq < #other_seq or #seq == #other_seq and seq < other_seq
end
-- Since Redis 7 a stream reports up to where single entries were deleted, and where it begins.
local info, facts = call('XINFO', 'STREAM', stream), {}
for at = 1, #info, 2 do facts[info[at]] = info[at + 1] end
local deleted, first = facts['max-deleted-entry-id'], facts['recorded-first-entry-id']
local are_there = facts.length > 0 and deleted and is_before(deleted, ids[1]) and not is_before(ids[1], first)
local claim = { 'XCLAIM', stream, group, consumer, 0 }
for _, id in ipairs(ids) do
  if are_there or call('XRANGE', stream, id, id)[1] then claim[#claim + 1] = id end
end
local count = #claim - 5
if count == 0 then
  return 0
end
for _, word in ipairs({ 'RETRYCOUNT', 0, 'JUSTID' }) do
  claim[#claim + 1] = word
end
call(unpack(claim))
return count
