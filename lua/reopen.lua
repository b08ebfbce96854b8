-- Opens a sale that lua/close.lua has closed: it goes on, or is paused as it was before. Call it only in the
-- partition that the voucher belongs to: if the sale once moved away from it, the remains there are removed.
-- KEYS[1] voucher: hash of, among others, state, pause and moving, as in lua/close.lua
-- Reply 0: it was not closed
-- Reply 1: the sale is as it was before
-- Written by `just lua` from lua/src/reopen.lua: change that file, not this one
local call, voucher = redis.call, KEYS[1]
local before = call('HGET', voucher, 'moving')
if before == 'gone' then call('UNLINK', voucher) end
if not before or before == 'gone' then return 0 end
if before == 'all' then call('HSET', voucher, 'pause', 'all') end
if before == 'running' then call('HDEL', voucher, 'state') end
call('HDEL', voucher, 'moving')
return 1
