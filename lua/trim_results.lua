-- Deletes the oldest results, and counts for each webhook how many of them it had not sent: results that its
-- group had not read, and results that were pending. With Redis 6.2, which tells no lag, the first call that
-- overtakes a group also counts results of this call that the group had read.
-- KEYS[1] results: stream; KEYS[2] webhooks: hash, `<name>:lost` -> number of results that were not sent
-- ARGV[1] by: MINID or MAXLEN; ARGV[2] limit: for XTRIM; ARGV[3] most: entries at most in this call, so that
-- it is short; ARGV[4] prefix: the names of the webhooks' groups begin with it
-- Reply 0: nothing to delete
-- Reply above 0: how many were deleted; whole nodes only, so a few more stay than the limit allows
-- Written by `just lua` from lua/src/trim_results.lua: change that file, not this one
local results, webhooks, by, limit, most, prefix = KEYS[1], KEYS[2], ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call = redis.call
local function is_less(a, b)
  local a_ms, a_seq, b_ms, b_seq = a:match('^%d+'), a:match('%d+$'), b:match('^%d+'), b:match('%d+$')
  if a_ms == b_ms then a_ms, b_ms = a_seq, b_seq end
  return #a_ms < #b_ms or #a_ms == #b_ms and a_ms < b_ms
end
local function named(reply)
  local values = {}
  for at = 1, #reply, 2 do values[reply[at]] = reply[at + 1] end
  return values
end
local first = (call('XRANGE', results, '-', '+', 'COUNT', 1)[1] or {})[1]
if not first then return 0 end
local groups, length = {}, call('XLEN', results)
for _, info in ipairs(call('XINFO', 'GROUPS', results)) do
  local group = named(info)
  if group.name:sub(1, #prefix) == prefix then groups[#groups + 1] = group end
end
local trimmed = call('XTRIM', results, by, '~', limit, 'LIMIT', most)
if trimmed == 0 or #groups == 0 then return trimmed end
local left = (call('XRANGE', results, '-', '+', 'COUNT', 1)[1] or {})[1]
local last = named(call('XINFO', 'STREAM', results))['last-generated-id']
for _, group in ipairs(groups) do
  local read, lost = group['last-delivered-id'], 0
  if is_less(read, first) then
    lost = trimmed
  elseif is_less(read, left or last) then
    -- Before the call, the group had read all results but its lag.
    lost = math.max(trimmed - (group.lag and length - group.lag or 0), 0)
  end
  if group.pending > 0 then
    local before = left and '(' .. left or '+'
    lost = lost + #call('XPENDING', results, group.name, first, before, most)
  end
  if lost > 0 then call('HINCRBY', webhooks, group.name:sub(#prefix + 1) .. ':lost', lost) end
end
return trimmed
