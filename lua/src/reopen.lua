-- Opens a sale that lua/close.lua has closed: it goes on, or is paused as it was before. To be called only
-- where the voucher belongs: what is left there of a sale that moved away once is removed.
-- KEYS[1] voucher: hash of, among others, state, pause and moving, as in lua/close.lua
-- Reply 0: it was not closed
-- Reply 1: it is as it was before
local call, voucher = redis.call, KEYS[1]
local before = call('HGET', voucher, 'moving')
if before == 'gone' then call('UNLINK', voucher) end
if not before or before == 'gone' then return 0 end
if before == 'all' then call('HSET', voucher, 'pause', 'all') end
if before == 'running' then call('HDEL', voucher, 'state') end
call('HDEL', voucher, 'moving')
return 1
