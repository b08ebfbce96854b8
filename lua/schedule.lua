-- Changes the window of a sale, also while the sale is on. Stock, buyers and journal stay.
-- KEYS[1] voucher: hash of, among others, begin_ms, end_ms, delisted and moving
-- ARGV[1] begin_ms: Unix time in milliseconds, '' for no bound
-- ARGV[2] end_ms: likewise, later than begin_ms
-- ARGV[3], ARGV[4] begin_ms and end_ms that the sale must have, '' for no bound; optional
-- Reply 0: the sale has this window now
-- Reply 1: refused, the sale has another window than ARGV[3] and ARGV[4]
-- Reply 2: refused, the voucher was delisted
-- Reply 3: refused, the sale moves to another partition
-- Error BADARG: an argument is invalid
-- Written by `just lua` from lua/src/schedule.lua: change that file, not this one
local sale_key, begin_ms, end_ms, from_begin_ms, from_end_ms = KEYS[1], unpack(ARGV, 1, 4)
local call, find = redis.call, string.find
local function is_window(begin_ms, end_ms)
  return #begin_ms <= 14 and find(begin_ms, '^%d*$') and #end_ms <= 14 and find(end_ms, '^%d*$')
    and (begin_ms == '' or end_ms == '' or end_ms - begin_ms > 0)
end
if #KEYS ~= 1 or #ARGV ~= 2 and #ARGV ~= 4 or not is_window(begin_ms, end_ms) then
  return redis.error_reply('BADARG expected: a key, begin_ms, a later end_ms, the present bounds or nothing')
end
local sale = call('HMGET', sale_key, 'begin_ms', 'end_ms', 'delisted', 'moving')
if sale[3] then return 2 end
if sale[4] then return 3 end
if from_begin_ms and ((sale[1] or '') ~= from_begin_ms or (sale[2] or '') ~= from_end_ms) then return 1 end
for field, value in pairs({ begin_ms = begin_ms, end_ms = end_ms }) do
  if value == '' then
    call('HDEL', sale_key, field)
  else
    call('HSET', sale_key, field, value)
  end
end
return 0
