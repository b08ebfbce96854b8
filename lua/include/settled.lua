-- The old entries of a dead letter that may be deleted: those that no group holds pending.
-- Reads: call; stream; entries, a list of ids. Defines: settled, a list of ids.
local groups = call('EXISTS', stream) == 1 and call('XINFO', 'GROUPS', stream) or {}
local settled = {}
for _, id in ipairs(entries) do
  local is_pending = false
  for _, group in ipairs(groups) do
    is_pending = is_pending or call('XPENDING', stream, group[2], id, id, 1)[1]
  end
  if not is_pending then settled[#settled + 1] = id end
end
