-- Gives a voucher limits, others than before, or none. Its stock has another name while there are limits: a
-- script that does not know them finds none. Buyers and journal stay.
-- KEYS[1] stock: string, without limits; KEYS[2] stock: with limits; KEYS[3] journal: hash, gets the field
-- #limited while there are limits; KEYS[4] limits: hash, as in admit_limited.lua; KEYS[5] voucher: hash
-- KEYS[6] orders: stream, none of whose entries is younger than the limits, whatever the clock says
-- ARGV[1] rules: see README; '' for no limits from now on; ARGV[2] by: who changes them, as in release.lua
-- Reply 0: nothing was to be changed, the voucher has no limits
-- Reply array: 0 where nothing was to be changed, otherwise 1; since when the voucher has limits (or has none
-- any more), in Unix ms
-- Reply 2: refused, the voucher was delisted, or moves to another partition
-- Reply 3: refused, both names have a stock: somebody loaded it beside this
-- Error BADARG: an argument is not what it must be
local call, match, rules, by = redis.call, string.match, ARGV[1], ARGV[2]
if #KEYS ~= 6 or #ARGV ~= 2 or rules ~= '' and not string.find(rules, '^[01] [%d-]+;?') or #by > 64
  or not string.find(by, '^[%w_.:-]+$') then
  return redis.error_reply('BADARG wanted: 6 keys, rules, by')
end
local sale = call('HMGET', KEYS[5], 'delisted', 'moving')
if sale[1] or sale[2] then return 2 end
local known, noted = call('HMGET', KEYS[4], 'rules', 'since'), call('HGET', KEYS[3], '#limited')
local plain, limited = call('EXISTS', KEYS[1]) == 1, call('EXISTS', KEYS[2]) == 1
if plain and limited then return 3 end
local time, last = call('TIME'), call('XREVRANGE', KEYS[6], '+', '-', 'COUNT', 1)[1]
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
if last and match(last[1], '^%d+') - now_ms > 0 then now_ms = match(last[1], '^%d+') end
if rules == '' then
  if not (known[1] or noted or limited) then return 0 end
  if limited then call('RENAME', KEYS[2], KEYS[1]) end
  call('UNLINK', KEYS[4])
  call('HDEL', KEYS[3], '#limited')
  return { 1, tonumber(now_ms) }
end
if known[1] == rules and noted and not plain then return { 0, tonumber(known[2]) } end
-- HSET comes first: it is refused when memory is short.
call('HSET', KEYS[4], 'rules', rules, 'since', known[2] or now_ms)
call('HSET', KEYS[3], '#limited', '{"action":"limit","change":0,"by":"' .. by .. '","timestamp":'
  .. (known[2] or now_ms) .. '}')
if plain then call('RENAME', KEYS[1], KEYS[2]) end
return { 1, tonumber(known[2] or now_ms) }
