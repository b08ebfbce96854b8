-- Ends the leases that this token holds; those of others are left alone.
-- KEYS[1] and all that follow: string, one per name; its value is the token of the holder
-- ARGV[1] token: identifies the holder
-- Reply: how many leases this token still held, and which ended now
local token = ARGV[1]
local call = redis.call

local ended = 0
for _, key in ipairs(KEYS) do
  if call('GET', key) == token then
    call('DEL', key)
    ended = ended + 1
  end
end
return ended
