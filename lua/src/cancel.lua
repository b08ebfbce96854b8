-- Ends the order of a dead letter: releases it as release.lua does, once for each order id, and deletes the
-- letter. It also deletes the old entries of the letter, except those that a group holds pending: a consumer
-- group that is created again would bring the order back. It acts only while the letter exists; an error
-- leaves no trace. Before this call, MySQL must have a note that the order is never written.
-- KEYS[1] dead: stream of the dead letters; KEYS[2] stream: the orders
-- KEYS[3] stock: string, units left, at most 13 digits; never created here
-- KEYS[4] buyers: set of the users who were admitted
-- KEYS[5] journal: hash, order id -> stock movement as JSON; from and to are null if no stock is loaded
-- ARGV[1] letter: its id in the dead stream; ARGV[2] order id; ARGV[3] user id: decimal, unpadded
-- ARGV[4] units: to release, 0 .. 10000; ARGV[5] free: '1' lets the user order again, '0' does not
-- ARGV[6] by: the one who releases, 1 .. 64 letters, digits and _.:-
-- ARGV[7] and all that follow: ids of the entries that the letter once was
-- Reply 0: no such letter any more; nothing was done; Reply 1: released now
-- Reply 2: released now, but no stock is loaded, so no unit was raised
-- Reply 3: was released before; only letter and entries were deleted
-- Reply 4: the complete journal does not hold the order as admitted; only letter and entries were deleted
-- Reply 5: no key of the sale exists, and none is created; only letter and entries were deleted
-- Error IDTAKEN: the order id belongs to an order of another user
-- Error BADARG: the stock is not a number
-- Error LIMITED: as in release.lua: ask release_limited.lua, then drop.lua
local dead, stream, stock_key, buyers, journal = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local letter, order, user, units, free, by = unpack(ARGV, 1, 6)
local call, find = redis.call, string.find
if not call('XRANGE', dead, letter, letter)[1] then return 0 end
local entry, is_complete, is_limited = unpack(call('HMGET', journal, order, '#complete', '#limited'))
local is_released = entry and find(entry, '"action":"release"', 1, true)
if not is_released and (is_limited or entry and find(entry, '"uses":"', 1, true)) then
  return redis.error_reply('LIMITED the voucher has or had limits: call release_limited.lua')
end
--- @include "taken"
if taken and not is_released then return redis.error_reply(taken) end
--- @include "admitted"
local stock, change = call('GET', stock_key), tonumber(units)
if stock and (#stock > 13 or stock ~= '0' and not find(stock, '^%-?[1-9]%d*$')) then
  return redis.error_reply('BADARG the stock is not a number')
end
call('SISMEMBER', buyers, user) -- fails on a key of another type before anything is written
local entries = { unpack(ARGV, 7) }
--- @include "settled"
local is_gone = not (stock or entry) and call('EXISTS', buyers, journal) == 0
local is_unknown = is_gone or is_complete and not admitted and not is_released
if not is_released and not is_unknown then
  --- @include "time"
  --- @include "release_note"
  call('HSET', journal, order, note)
  if free == '1' then call('SREM', buyers, user) end
  if stock and change > 0 then call('INCRBY', stock_key, units) end
end
for _, id in ipairs(settled) do call('XDEL', stream, id) end
call('XDEL', dead, letter)
if is_released then return 3 end
if is_gone then return 5 end
if is_unknown then return 4 end
if not stock and change > 0 then return 2 end
return 1
