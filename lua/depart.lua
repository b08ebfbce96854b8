-- Removes a closed sale that has arrived in another partition. Its voucher stays, paused for good: whoever
-- asks here for an order is refused.
-- KEYS[1] stock: string; KEYS[2] buyers: set; KEYS[3] voucher: hash of, among others, moving, as in
-- lua/close.lua; KEYS[4] journal: hash
-- Reply 0: it was removed before
-- Reply 1: removed
-- Reply 2: refused, it is not closed
local call = redis.call
local moving = call('HGET', KEYS[3], 'moving')
if not moving then return 2 elseif moving == 'gone' then return 0 end
-- HSET comes first: it is refused when memory is short.
call('HSET', KEYS[3], 'state', 'paused', 'moving', 'gone')
call('UNLINK', KEYS[1], KEYS[2], KEYS[4])
return 1
