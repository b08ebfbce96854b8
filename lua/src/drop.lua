-- Deletes a dead letter for good, for one of which nothing can be released: it holds no order, its order
-- id is another order's, or its order stands in MySQL. Its old entries are deleted, too, or they would count
-- as lost; but not where a group holds them pending. Only while the letter is there.
-- KEYS[1] dead: stream of the dead letters; KEYS[2] stream: the orders
-- KEYS[3] journal: hash of the order's voucher; absent where it is not to be looked at
-- ARGV[1] letter: its id in the dead stream
-- ARGV[2] order id, ARGV[3] user id: '' where the journal is not to be looked at
-- ARGV[4] and all that follow: ids of the entries that the letter once was
-- Reply 0: no such letter any more; nothing was done
-- Reply 1: deleted
-- Reply 2: by the journal, this user's order took units that nobody has released; nothing was done
local dead, stream, journal = KEYS[1], KEYS[2], KEYS[3]
local letter, order, user = ARGV[1], ARGV[2], ARGV[3]
local call, find = redis.call, string.find
if not call('XRANGE', dead, letter, letter)[1] then return 0 end

local note = order ~= '' and call('HGET', journal, order)
if note and find(note, '"action":"admit"', 1, true) and find(note, '"by":"' .. user .. '"', 1, true) then
  return 2
end
local entries = { unpack(ARGV, 4) }
--- @include "settled"

for _, id in ipairs(settled) do call('XDEL', stream, id) end
call('XDEL', dead, letter)
return 1
