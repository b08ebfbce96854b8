-- Marks sales as busy, so that requests for an order get reply 11, or removes the mark. A mark says until
-- when, or from when on, a sale refuses orders. A pause stays as it is, and nothing is created for a sale
-- that does not exist. A voucher whose key is not a hash is left out.
-- KEYS[1] stock: string, without limits; KEYS[2] stock: with limits; KEYS[3] voucher: hash, gets the field
-- brake; KEYS[4] and all that follow: the same of the next voucher, and so on
-- ARGV[1] mark: 'until' refuses until a time, 'from' refuses from a time on, '' removes the mark
-- ARGV[2] milliseconds from now on, by the clock of Redis: that time; '' without a mark
-- Reply list: the number of sales whose mark was written or removed; then the position (from 1) of each
-- voucher that was left out
-- Error BADARG: an argument is invalid
local mark, span = ARGV[1], ARGV[2]
local call, find = redis.call, string.find
if #KEYS == 0 or #KEYS % 3 ~= 0 or #ARGV ~= 2
  or mark ~= '' and not ((mark == 'until' or mark == 'from') and #span < 9 and find(span, '^%d+$')) then
  return redis.error_reply('BADARG expected: 3 keys a voucher, a mark, milliseconds')
end
local vouchers, answers = {}, { 0 }
for at = 1, #KEYS, 3 do
  -- HGET, not TYPE: users of Redis that were set up for earlier versions have no permission for TYPE.
  local held = redis.pcall('HGET', KEYS[at + 2], 'brake')
  if type(held) ~= 'table' then
    if mark == '' or call('EXISTS', KEYS[at], KEYS[at + 1]) > 0 then
      vouchers[#vouchers + 1] = KEYS[at + 2]
    end
  elseif find(held.err, 'WRONGTYPE', 1, true) then
    answers[#answers + 1] = (at + 2) / 3
  else
    return held
  end
end
--- @include "time"
for _, voucher in ipairs(vouchers) do
  if mark == '' then
    answers[1] = answers[1] + call('HDEL', voucher, 'brake')
  else
    call('HSET', voucher, 'brake', mark .. ' ' .. string.format('%d', now_ms + span))
    answers[1] = answers[1] + 1
  end
end
return answers
