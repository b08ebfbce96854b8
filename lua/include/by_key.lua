-- Admits an order under a key of its caller, by the function decide.
-- Reads: decide, which admits by KEYS and ARGV without the key and its arguments; KEYS, whose last one is
-- the key; ARGV, whose last two are digest and milliseconds.
local span, digest, key = table.remove(ARGV), table.remove(ARGV), table.remove(KEYS)
local find, new = string.find, ARGV[1]
if not key or not find(span or '', '^[1-9]%d*$') or #span > 10 or not find(digest or '', '^%w+$')
  or #digest > 64 then
  return redis.error_reply('BADARG expected: after the other arguments a key, a digest, milliseconds')
end
local before, asked = string.match(redis.call('GET', key) or '', '^(%d+) (%w+)$')
if asked and asked ~= digest then
  return redis.error_reply('OTHERREQ an earlier request under this key was different')
end
local wanted = before or new
ARGV[1] = wanted
local decided = decide()
if before and type(decided) == 'table' and find(decided.err or '', '^%-?IDTAKEN ') then
  -- The order id stored under the key is another user's: the key now stands for the new id.
  before, wanted = nil, new
  ARGV[1] = wanted
  decided = decide()
end
if type(decided) == 'table' and decided.err then return decided end
-- A failed write of the key is no error: the order is admitted, and the caller must get that answer.
if decided == 0 or decided == 6 then
  if before then
    redis.pcall('PEXPIRE', key, span)
  else
    redis.pcall('SET', key, wanted .. ' ' .. digest, 'PX', span)
  end
end
return { decided, wanted }
