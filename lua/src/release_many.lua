-- Releases many orders of one voucher, one after the other, each by the rules of release.lua and
-- independently.
-- KEYS[1] stock, KEYS[2] buyers, KEYS[3] journal: as in release.lua
-- ARGV[1] free, ARGV[2] by: as in release.lua; then of each order, at most 1000: ARGV[3] order id,
-- ARGV[4] user id, ARGV[5] units: as in release.lua; ARGV[6] is the id of the second order, and so on
-- Reply list: an answer for each order: the reply of release.lua, or its error text if nothing was done
-- Answers 0 1 2 3 4, Errors BADARG IDTAKEN LIMITED: as in release.lua
-- Error BADARG: keys, free, by, stock or number of arguments are invalid; nothing was done
local stock_key, buyers, journal = KEYS[1], KEYS[2], KEYS[3]
local free, by = ARGV[1], ARGV[2]
local call, find = redis.call, string.find
local stock = #KEYS == 3 and call('GET', stock_key)
if #KEYS ~= 3 or #ARGV < 5 or #ARGV > 3002 or #ARGV % 3 ~= 2 or free ~= '0' and free ~= '1'
  or not find(by, '^[%w_.:-]+$') or #by > 64
  or stock and (#stock > 13 or stock ~= '0' and not find(stock, '^%-?[1-9]%d*$')) then
  return redis.error_reply('BADARG expected: 3 keys, 0 or 1, by, 3 arguments an order, a numeric stock')
end
local orders, answers, notes, users, released = {}, {}, {}, {}, {}
for at = 3, #ARGV, 3 do orders[#orders + 1] = ARGV[at] end
local has_keys = stock or call('EXISTS', buyers, journal) > 0 -- else nothing is created, as in release.lua
local entries = call('HMGET', journal, '#complete', '#limited', unpack(orders))
local is_complete, is_limited = entries[1], entries[2]
--- @include "time"
call('SISMEMBER', buyers, by) -- fails on a key of another type before anything is written
local left = stock
local function release(entry, at) -- entry: the journal's note of this order; at: its position in ARGV
  local order, user, units = unpack(ARGV, at, at + 2)
  local values, first, last = ARGV, at, at + 1
  --- @include "ids"
  if not are_ids or units ~= '0' and (not find(units, '^[1-9]%d?%d?%d?%d?$') or tonumber(units) > 10000) then
    return 'BADARG expected: ids, units'
  end
  if released[order] or entry and find(entry, '"action":"release"', 1, true) then return 0 end
  --- @include "taken"
  if taken then return taken end
  if is_limited or entry and find(entry, '"uses":"', 1, true) then
    return 'LIMITED the voucher has or had limits: call release_limited.lua'
  end
  --- @include "admitted"
  if not has_keys then return 4 end
  if is_complete and not admitted then return 3 end
  local stock, change = left, tonumber(units)
  --- @include "release_note"
  if stock then left = string.format('%d', stock + change) end
  notes[#notes + 1], notes[#notes + 2] = order, note
  users[#users + 1] = user
  released[order] = true
  if not stock and change > 0 then return 2 end
  return 1
end
for n = 1, #orders do answers[n] = release(entries[n + 2], 3 * n) end
if #notes > 0 then
  call('HSET', journal, unpack(notes)) -- first: it is refused if memory is short, SREM would not be
  if free == '1' then call('SREM', buyers, unpack(users)) end
  if left ~= stock then call('INCRBY', stock_key, string.format('%d', left - stock)) end
end
return answers
