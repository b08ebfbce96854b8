-- Puts what was copied of a closed sale in its place in another partition, in one step. It stays closed.
-- A refusal changes nothing of a sale.
-- KEYS[1] stock: string; KEYS[2] buyers: set; KEYS[3] voucher: hash of, among others, moving, as in
-- lua/close.lua; KEYS[4] journal: hash
-- KEYS[5] copied buyers, KEYS[6] copied voucher, KEYS[7] copied journal: missing where there are none
-- ARGV[1] units: the stock, '' for none
-- ARGV[2] members, ARGV[3] fields of the voucher, ARGV[4] fields of the journal: how many there must be
-- Reply 0: done
-- Reply 1: refused, what was copied is not all there: Redis lost it, or the call was done before
-- Reply 2: refused, a sale of this voucher is open here
-- Error BADARG: an argument is not what it must be, or the copied voucher is not closed
local call, units = redis.call, ARGV[1]
if #KEYS ~= 7 or #ARGV ~= 4 or #units > 14 or units ~= '' and not string.find(units, '^%-?%d+$') then
  return redis.error_reply('BADARG wanted: 7 keys, units, counts of members and of fields')
end
if call('SCARD', KEYS[5]) ~= tonumber(ARGV[2]) or call('HLEN', KEYS[6]) ~= tonumber(ARGV[3])
  or call('HLEN', KEYS[7]) ~= tonumber(ARGV[4]) then
  return 1
end
local moving = call('HGET', KEYS[6], 'moving')
if not moving or moving == 'gone' then
  return redis.error_reply('BADARG the copied voucher is not closed')
end
if call('EXISTS', KEYS[1], KEYS[2], KEYS[4]) > 0 and not call('HGET', KEYS[3], 'moving') then return 2 end
-- HSET comes first: it is refused when memory is short.
call('HSET', KEYS[6], 'moving', moving)
call('UNLINK', KEYS[1], KEYS[2], KEYS[3], KEYS[4])
for at = 5, 7 do
  if call('EXISTS', KEYS[at]) == 1 then
    call('RENAME', KEYS[at], KEYS[at - 3])
    call('PERSIST', KEYS[at - 3])
  end
end
if units ~= '' then call('SET', KEYS[1], units) end
return 0
