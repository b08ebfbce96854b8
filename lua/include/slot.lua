-- The slot of an order, if a user may hold several.
-- Reads: call, format, refuse; buyers, user; uses; own, the writes to uses. Defines: slots, the slots that
-- the user holds, a bit each. Sets slot.
local slots = tonumber(call('HGET', uses, 'u:' .. user) or call('SISMEMBER', buyers, user))
if not slots or slots < 0 or slots > 2147483647 or slots % 1 ~= 0 then
  return refuse(redis.error_reply('BADUSES u:' .. user))
end
while slot < 32 and math.floor(slots / 2 ^ (slot - 1)) % 2 == 1 do slot = slot + 1 end
if slot == 32 then return refuse({ 9, 'slots', '0', '', '' }) end
own[#own + 1], own[#own + 2] = 'u:' .. user, format('%d', slots + 2 ^ (slot - 1))
