-- Stops the sale of a voucher until it is resumed: requests for an order are refused.
-- KEYS[1] voucher: hash of, among others, state ('paused' stops the sale), pause ('all': with all others) and
-- moving: the state that lua/reopen.lua restores
-- ARGV[1] pause: 'own' for this voucher by its name, 'all' together with all others
-- Reply 0: it was paused before; 'own' makes it a pause of its own, which 'all' does not end
-- Reply 1: paused
local voucher, pause = KEYS[1], ARGV[1]
local call = redis.call
local found = call('HMGET', voucher, 'state', 'moving')
local was_paused = found[1] == 'paused'
if found[2] then
  if pause ~= 'all' and found[2] ~= 'gone' then call('HSET', voucher, 'moving', 'own') end
elseif pause ~= 'all' then
  call('HSET', voucher, 'state', 'paused')
  call('HDEL', voucher, 'pause')
elseif not was_paused then
  call('HSET', voucher, 'state', 'paused', 'pause', 'all')
end
if was_paused then return 0 end
return 1
