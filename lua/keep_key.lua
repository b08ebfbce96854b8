-- Says for how long a caller's key is remembered from now on, by what became of its order: long where the
-- journal holds the order, for a moment where it was refused, for refusals take no memory.
-- A key that a failover took along is remembered again, for the order that the journal holds.
-- KEYS[1] key: string, as in remember_key.lua; KEYS[2] journal: hash, as in admit.lua
-- ARGV[1] order id; ARGV[2] milliseconds where the journal holds it; ARGV[3] milliseconds where it does not
-- ARGV[4] digest: as in remember_key.lua; ARGV[5] user id: an id that another user's order has is not held
-- Reply 0: nothing changed, the key is gone and the journal does not hold the order, or it stands for another
-- order that the journal holds, or something else was asked for under it
-- Reply 1: done
-- Error BADARG: an argument is not what it must be
local call, find, order, long, short = redis.call, string.find, ARGV[1], ARGV[2], ARGV[3]
local digest, user = ARGV[4], ARGV[5]
local function is_span(text) return find(text, '^[1-9]%d*$') and #text <= 10 end
local function is_id(text) return find(text, '^[1-9]%d*$') and #text <= 19 end
if #KEYS ~= 2 or #ARGV ~= 5 or not (is_id(order) and is_id(user) and is_span(long) and is_span(short)
  and find(digest, '^%w+$') and #digest <= 64) then
  return redis.error_reply('BADARG wanted: 2 keys, order id, milliseconds, milliseconds, digest, user id')
end
local function holds(id)
  local entry = call('HGET', KEYS[2], id) or ''
  return find(entry, '"action":"release"', 1, true) or find(entry, '"by":"' .. user .. '"', 1, true)
end
local known, is_held = call('GET', KEYS[1]), holds(order)
local other, asked = string.match(known or '', '^(%d+) (%w+)$')
if other == order then call('PEXPIRE', KEYS[1], is_held and long or short) return 1 end
if not is_held or other and (asked ~= digest or holds(other)) then return 0 end
call('SET', KEYS[1], order .. ' ' .. digest, 'PX', long)
return 1
