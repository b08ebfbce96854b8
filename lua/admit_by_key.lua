-- Admits an order that is asked for under a key of the caller's choice. Whoever asks again under the same key
-- asks for the same order. The order and its key are written in one step: a failover loses both or none.
-- Stands behind the text of admit.lua or of admit_limited.lua, which is the function `decide` here.
-- KEYS: those of that script; then the key: string 'order id digest', of one caller's key, user and voucher
-- ARGV: those of that script; then a digest of all that is asked for, 64 letters or digits at most; then for
-- how many milliseconds an order that is admitted keeps its key, from the last time that it was asked for
-- ARGV[1] order id: for a key that is new. A refusal leaves the key as it was
-- Reply array: the reply of that script; the order id that was asked for, now or before
-- Error BADARG: an argument is not what it must be; and all errors of that script
-- Error OTHERREQ: something else was asked for under this key
local span, digest, key, find = table.remove(ARGV), table.remove(ARGV), table.remove(KEYS), string.find
if not key or not find(span or '', '^[1-9]%d*$') or #span > 10 or not find(digest or '', '^%w+$')
  or #digest > 64 then
  return redis.error_reply('BADARG wanted: behind the others a key, a digest, milliseconds')
end
local before, asked = string.match(redis.call('GET', key) or '', '^(%d+) (%w+)$')
if asked and asked ~= digest then
  return redis.error_reply('OTHERREQ something else was asked for under this key')
end
ARGV[1] = before or ARGV[1]
local reply = decide()
local err = type(reply) == 'table' and reply.err
-- The id of before is another user's by now: whoever asks again gets a new one.
if before and err and find(err, 'IDTAKEN', 1, true) then redis.call('DEL', key) end
if err then return reply end
if reply == 0 or reply == 6 then redis.call('SET', key, ARGV[1] .. ' ' .. digest, 'PX', span) end
return { reply, ARGV[1] }
