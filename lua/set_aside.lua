-- Notes of pending entries that their consumer has them in hand no more, but keeps them: their number of
-- deliveries is 0 until they are handed over again. Whoever finds 1 or more after a crash knows that the
-- process had the entry in hand. Entries of others, and those that were deleted or trimmed, stay as they are.
-- KEYS[1] stream
-- ARGV[1] group: consumer group; ARGV[2] consumer: whose entries
-- ARGV[3] and all that follow: entry ids, at most 5000
-- Reply 0: none of them is this consumer's
-- Reply above 0: how many are
local stream, group, consumer = KEYS[1], ARGV[1], ARGV[2]

local claim = { 'XCLAIM', stream, group, consumer, 0 }
for at = 3, #ARGV do
  local id = ARGV[at]
  local held = redis.call('XPENDING', stream, group, id, id, 1)[1]
  if held and held[2] == consumer and redis.call('XRANGE', stream, id, id)[1] then
    claim[#claim + 1] = id
  end
end
local count = #claim - 5
if count == 0 then
  return 0
end
for _, word in ipairs({ 'RETRYCOUNT', 0, 'JUSTID' }) do
  claim[#claim + 1] = word
end
redis.call(unpack(claim))
return count
