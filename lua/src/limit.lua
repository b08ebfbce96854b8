-- Gives a voucher limits, changes them, or removes them. While there are limits, its stock has another name,
-- so a script that does not know limits finds none. Buyers and journal stay.
-- KEYS[1] stock: string, without limits; KEYS[2] stock: with limits; KEYS[3] journal: hash, gets the field
-- #limited while there are limits; KEYS[4] limits: hash, as in admit_limited.lua; KEYS[5] voucher: hash
-- KEYS[6] orders: stream, none of whose entries is younger than the limits, even if the clock was set
-- ARGV[1] rules: see README; '' for no limits from now on; ARGV[2] by: the one who changes, as in
-- release.lua
-- Reply 0: nothing to change, the voucher has no limits
-- Reply array: 0, nothing to change; since when the voucher has these limits, in Unix ms
-- Reply array: 1, changed; since when the voucher has limits (or has none any more), in Unix ms
-- Reply 2: refused, the voucher was delisted, or moves to another partition
-- Reply 3: refused, both names have a stock: another program loaded one
-- Error BADARG: an argument is invalid
local plain_key, limited_key, journal, limits, sale_key, orders = unpack(KEYS, 1, 6)
local rules, by = ARGV[1], ARGV[2]
local call, match = redis.call, string.match
if #KEYS ~= 6 or #ARGV ~= 2 or rules ~= '' and not string.find(rules, '^[01] [%d-]+;?') or #by > 64
  or not string.find(by, '^[%w_.:-]+$') then
  return redis.error_reply('BADARG expected: 6 keys, rules, by')
end
local sale = call('HMGET', sale_key, 'delisted', 'moving')
if sale[1] or sale[2] then return 2 end
local known_rules, known_since = unpack(call('HMGET', limits, 'rules', 'since'))
local noted = call('HGET', journal, '#limited')
local plain, limited = call('EXISTS', plain_key) == 1, call('EXISTS', limited_key) == 1
if plain and limited then return 3 end
--- @include "time"
local last = call('XREVRANGE', orders, '+', '-', 'COUNT', 1)[1]
local last_ms = last and match(last[1], '^%d+')
if last_ms and last_ms - now_ms > 0 then now_ms = last_ms end
if rules == '' then
  if not (known_rules or noted or limited) then return 0 end
  if limited then call('RENAME', limited_key, plain_key) end
  call('UNLINK', limits)
  call('HDEL', journal, '#limited')
  return { 1, tonumber(now_ms) }
end
if known_rules == rules and noted and not plain then return { 0, tonumber(known_since) } end
local since_ms = known_since or now_ms
-- HSET comes first: it is refused if memory is short.
call('HSET', limits, 'rules', rules, 'since', since_ms)
call('HSET', journal, '#limited', '{"action":"limit","change":0,"by":"' .. by .. '","timestamp":'
  .. since_ms .. '}')
if plain then call('RENAME', plain_key, limited_key) end
return { 1, tonumber(since_ms) }
