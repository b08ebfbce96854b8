-- Deletes a dead letter for good, if nothing can be released for it: it holds no order, its order id belongs
-- to another order, or its order is in MySQL. It also deletes the old entries of the letter, or they would
-- count as lost, except those that a group holds pending. It acts only while the letter exists.
-- KEYS[1] dead: stream of the dead letters; KEYS[2] stream: the orders
-- KEYS[3] journal: hash of the order's voucher; absent if it must not be checked
-- ARGV[1] letter: its id in the dead stream
-- ARGV[2] order id, ARGV[3] user id: '' if the journal must not be checked
-- ARGV[4] and all that follow: ids of the entries that the letter once was
-- Reply 0: no such letter any more; nothing was done
-- Reply 1: deleted
-- Reply 2: by the journal, this user's order still holds units that were not released; nothing was done
-- Written by `just lua` from lua/src/drop.lua: change that file, not this one
local dead, stream, journal = KEYS[1], KEYS[2], KEYS[3]
local letter, order, user = ARGV[1], ARGV[2], ARGV[3]
local call, find = redis.call, string.find
if not call('XRANGE', dead, letter, letter)[1] then return 0 end

local note = order ~= '' and call('HGET', journal, order)
if note and find(note, '"action":"admit"', 1, true) and find(note, '"by":"' .. user .. '"', 1, true) then
  return 2
end
local entries = { unpack(ARGV, 4) }
local groups = call('EXISTS', stream) == 1 and call('XINFO', 'GROUPS', stream) or {}
local settled = {}
for _, id in ipairs(entries) do
  local is_pending = false
  for _, group in ipairs(groups) do
    is_pending = is_pending or call('XPENDING', stream, group[2], id, id, 1)[1]
  end
  if not is_pending then settled[#settled + 1] = id end
end

for _, id in ipairs(settled) do call('XDEL', stream, id) end
call('XDEL', dead, letter)
return 1
