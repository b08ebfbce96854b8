-- Deletes old entries that no group needs any more: those below the cutoff, below the oldest pending entry
-- of every group, and below the last delivered entry of every group. It never deletes by length: that would
-- delete unread orders.
-- KEYS[1] stream
-- ARGV[1] cutoff: entry id; only older entries are deleted
-- ARGV[2] most: entries at most in this call, so that it is short
-- Reply 0: nothing to delete, or there is no group
-- Reply above 0: how many were deleted; whole nodes only, so up to a hundred older entries may stay
-- Written by `just lua` from lua/src/trim.lua: change that file, not this one
local stream, cutoff, most = KEYS[1], ARGV[1], ARGV[2]
local call = redis.call
local function is_less(a, b)
  local a_ms, a_seq, b_ms, b_seq = a:match('^%d+'), a:match('%d+$'), b:match('^%d+'), b:match('%d+$')
  if a_ms == b_ms then a_ms, b_ms = a_seq, b_seq end
  return #a_ms < #b_ms or #a_ms == #b_ms and a_ms < b_ms
end
if call('EXISTS', stream) == 0 then return 0 end
local groups = call('XINFO', 'GROUPS', stream)
if #groups == 0 then return 0 end
local keep_from = cutoff
for _, info in ipairs(groups) do
  local group = {}
  for at = 1, #info, 2 do group[info[at]] = info[at + 1] end
  local needs = group['last-delivered-id']
  if group.pending > 0 then needs = call('XPENDING', stream, group.name)[2] end
  if is_less(needs, keep_from) then keep_from = needs end
end
return call('XTRIM', stream, 'MINID', '~', keep_from, 'LIMIT', most)
