-- Says for how long a caller's key is remembered from now on, when it is known what became of its order:
-- long where the journal holds the order, for a moment where it was refused: refusals take no memory.
-- KEYS[1] key: string, as in remember_key.lua; KEYS[2] journal: hash, as in admit.lua
-- ARGV[1] order id; ARGV[2] milliseconds where the journal holds it; ARGV[3] milliseconds where it does not
-- Reply 0: nothing changed, the key is gone or stands for another order
-- Reply 1: done
-- Error BADARG: an argument is not what it must be
local call, find, order, long, short = redis.call, string.find, ARGV[1], ARGV[2], ARGV[3]
local function is_span(text) return find(text, '^[1-9]%d*$') and #text <= 10 end
if #KEYS ~= 2 or #ARGV ~= 3 or not (find(order, '^[1-9]%d*$') and #order <= 19 and is_span(long)
  and is_span(short)) then
  return redis.error_reply('BADARG wanted: 2 keys, order id, milliseconds, milliseconds')
end
local known = call('GET', KEYS[1])
if not known or string.match(known, '^%d+') ~= order then return 0 end
call('PEXPIRE', KEYS[1], call('HEXISTS', KEYS[2], order) == 1 and long or short)
return 1
