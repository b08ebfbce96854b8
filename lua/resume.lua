-- Ends the pause of a voucher.
-- KEYS[1] voucher: hash of, among others, state ('paused' stops the sale) and pause ('all': with all others)
-- ARGV[1] pause: 'own' however it was paused, 'all' only if that was together with all others
-- Reply 0: nothing changed, it is not paused or has a pause of its own
-- Reply 1: its sale goes on
local voucher, pause = KEYS[1], ARGV[1]
local found = redis.call('HMGET', voucher, 'state', 'pause')
if found[1] ~= 'paused' or pause == 'all' and found[2] ~= 'all' then
  return 0
end
redis.call('HDEL', voucher, 'state', 'pause')
return 1
