-- Ends the pause of a voucher.
-- KEYS[1] voucher: hash of, among others, state ('paused' stops the sale), pause ('all': with all others) and
-- moving: lua/close.lua has closed it, and only lua/reopen.lua opens it
-- ARGV[1] pause: 'own' however it was paused, 'all' only if it was paused together with all others
-- Reply 0: nothing changed, it is not paused, has a pause of its own, or is closed
-- Reply 1: its sale goes on
local voucher, pause = KEYS[1], ARGV[1]
local found = redis.call('HMGET', voucher, 'state', 'pause', 'moving')
if found[3] or found[1] ~= 'paused' or pause == 'all' and found[2] ~= 'all' then
  return 0
end
redis.call('HDEL', voucher, 'state', 'pause')
return 1
