-- Remembers which order a caller asks for under a key of its own choice, or tells for which one it was asked
-- before.
-- KEYS[1] key: string, made of the caller's key, its user and the voucher: order id and digest
-- ARGV[1] order id, remembered where the key is new; ARGV[2] digest of all that is asked for, 64 letters or
-- digits at most
-- ARGV[3] milliseconds to remember it, from now on
-- Reply array: 0 where the key is new, otherwise 1; the order id
-- Reply 2: refused, something else was asked for under this key
-- Error BADARG: an argument is not what it must be
local call, find, order, digest, span = redis.call, string.find, ARGV[1], ARGV[2], ARGV[3]
if #KEYS ~= 1 or #ARGV ~= 3 or not (find(order, '^[1-9]%d*$') and #order <= 19 and find(digest, '^%w+$')
  and #digest <= 64 and find(span, '^[1-9]%d*$') and #span <= 10) then
  return redis.error_reply('BADARG wanted: 1 key, order id, digest, milliseconds')
end
local known = call('GET', KEYS[1])
if not known then
  call('SET', KEYS[1], order .. ' ' .. digest, 'PX', span)
  return { 0, order }
end
local before, asked = string.match(known, '^(%d+) (%w+)$')
if asked ~= digest then return 2 end
-- Whoever asks again may be admitted now: it is remembered as if it were new.
call('PEXPIRE', KEYS[1], span)
return { 1, before }
