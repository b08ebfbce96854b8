-- Puts the copied keys of a closed sale in their place in another partition, in one step. The sale stays
-- closed. A refusal changes nothing of a sale.
-- KEYS[1] stock: string; KEYS[2] buyers: set; KEYS[3] voucher: hash of, among others, moving, as in
-- lua/close.lua; KEYS[4] journal: hash
-- KEYS[5] copied buyers, KEYS[6] copied voucher, KEYS[7] copied journal: missing if there are none
-- ARGV[1] units: the stock, '' for none
-- ARGV[2] members, ARGV[3] fields of the voucher, ARGV[4] fields of the journal: the expected numbers
-- Reply 0: done
-- Reply 1: refused, the copied keys are not complete: Redis lost data, or the call was done before
-- Reply 2: refused, a sale of this voucher is open here
-- Error BADARG: an argument is invalid, or the copied voucher is not closed
-- Written by `just lua` from lua/src/import_sale.lua: change that file, not this one
local stock, buyers, sale, journal = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local copied_buyers, copied_sale, copied_journal = KEYS[5], KEYS[6], KEYS[7]
local units, members, sale_fields, journal_fields = ARGV[1], ARGV[2], ARGV[3], ARGV[4]
local call = redis.call
if #KEYS ~= 7 or #ARGV ~= 4 or #units > 14 or units ~= '' and not string.find(units, '^%-?%d+$') then
  return redis.error_reply('BADARG expected: 7 keys, units, counts of members and of fields')
end
if call('SCARD', copied_buyers) ~= tonumber(members) or call('HLEN', copied_sale) ~= tonumber(sale_fields)
  or call('HLEN', copied_journal) ~= tonumber(journal_fields) then
  return 1
end
local moving = call('HGET', copied_sale, 'moving')
if not moving or moving == 'gone' then
  return redis.error_reply('BADARG the copied voucher is not closed')
end
if call('EXISTS', stock, buyers, journal) > 0 and not call('HGET', sale, 'moving') then return 2 end
-- HSET comes first: it is refused if memory is short.
call('HSET', copied_sale, 'moving', moving)
call('UNLINK', stock, buyers, sale, journal)
for at = 5, 7 do
  if call('EXISTS', KEYS[at]) == 1 then
    call('RENAME', KEYS[at], KEYS[at - 3])
    call('PERSIST', KEYS[at - 3])
  end
end
if units ~= '' then call('SET', stock, units) end
return 0
