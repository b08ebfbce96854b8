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
local new = ARGV[1]
ARGV[1] = before or new
local reply = decide()
if before and type(reply) == 'table' and find(reply.err or '', '^%-?IDTAKEN ') then
  -- The id of before is another user's: this one gets the new id, and the key stands for that.
  before, ARGV[1] = nil, new
  reply = decide()
end
if type(reply) == 'table' and reply.err then return reply end
-- Whatever comes of these two, it is decided: the order is there, and a caller must hear so.
if before and (reply == 0 or reply == 6) then redis.pcall('PEXPIRE', key, span)
elseif reply == 0 or reply == 6 then redis.pcall('SET', key, ARGV[1] .. ' ' .. digest, 'PX', span) end
return { reply, ARGV[1] }
