-- Takes or renews leases on several names at once, each for itself, in one round trip. A lease that the
-- same token holds already is renewed: a call that is sent twice does no harm, and renewing is the same
-- call again.
-- KEYS[1] and all that follow: string, one per name; its value is the token of the holder
-- ARGV[1] token: identifies the holder; unique per batch or process
-- ARGV[2] lease_ms: milliseconds until the lease ends by itself
-- Reply: array of the places in KEYS (from 1) that another token holds; empty when all are held now
local token, lease_ms = ARGV[1], ARGV[2]
local call = redis.call

local refused = {}
for position, key in ipairs(KEYS) do
  if not call('SET', key, token, 'NX', 'PX', lease_ms) then
    -- Redisson keeps a hash under the same name: that is somebody else's lock, too, and no error.
    if redis.pcall('GET', key) == token then
      call('PEXPIRE', key, lease_ms)
    else
      refused[#refused + 1] = position
    end
  end
end
return refused
