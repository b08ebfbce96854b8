-- Removes a closed sale that was imported in another partition. Its voucher key stays, paused for good:
-- requests for an order are refused here.
-- KEYS[1] stock: string; KEYS[2] buyers: set; KEYS[3] voucher: hash of, among others, moving, as in
-- lua/close.lua; KEYS[4] journal: hash
-- Reply 0: it was removed before
-- Reply 1: removed
-- Reply 2: refused, it is not closed
local stock, buyers, sale, journal = KEYS[1], KEYS[2], KEYS[3], KEYS[4]
local call = redis.call
local moving = call('HGET', sale, 'moving')
if not moving then return 2 end
if moving == 'gone' then return 0 end
-- HSET comes first: it is refused if memory is short.
call('HSET', sale, 'state', 'paused', 'moving', 'gone')
call('UNLINK', stock, buyers, journal)
return 1
