-- Closes a sale while the list of partitions is changed: requests for an order get the answer that it is
-- paused, and no other command ends that. The voucher remembers the pause that it had.
-- KEYS[1] voucher: hash of, among others, state ('paused' stops the sale), pause ('all': with all others)
-- and moving: the state that lua/reopen.lua restores: 'running', or paused by its 'own' name or with 'all'
-- others; 'gone' after the sale moved to another partition
-- Reply 0: it was closed before, or has moved
-- Reply 1: closed
local call, voucher = redis.call, KEYS[1]
local found = call('HMGET', voucher, 'state', 'pause', 'moving')
if found[3] then return 0 end
local before = found[1] ~= 'paused' and 'running' or found[2] == 'all' and 'all' or 'own'
call('HSET', voucher, 'state', 'paused', 'moving', before)
call('HDEL', voucher, 'pause')
return 1
