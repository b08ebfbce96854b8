-- Takes or renews locks in the layout of Redisson, each independently, in one round trip. A lock that the
-- same holder has already is renewed, and its count stays 1, because a call may be sent twice.
-- KEYS[1] and all that follow: hash, one per name; its only field is the holder: the id of a client, ':' and
-- the id of a thread or of a batch; the value is how often the holder has locked
-- ARGV[1] holder: unique per batch. The text up to the first '-' is common to all holders of this kind: a
-- lock of this kind that would last for longer than lease_ms is shortened
-- ARGV[2] lease_ms: milliseconds until the lock expires
-- ARGV[3] and all that follow: abandoned holders: the caller got no reply to their calls, so their locks may
-- exist. The call takes these locks over.
-- Reply list: of each lock that another holder has, its position in KEYS (from 1) and the milliseconds until
-- it expires (-1: it never expires); empty if the caller has all
local holder, lease_ms = ARGV[1], ARGV[2]
local call = redis.call
local kind = holder:match('^[^-]*-')

-- A key of another type is another program's lock, not an error.
local function may_take(key)
  if call('EXISTS', key) == 0 then return true end
  local count = redis.pcall('HGET', key, holder)
  if type(count) == 'string' then return true end
  for place = 3, #ARGV do
    if redis.pcall('HDEL', key, ARGV[place]) == 1 then return call('EXISTS', key) == 0 end
  end
  return false
end

-- A lock of this kind exceeds lease_ms only if the clock was set back. The lock is shortened, not taken: a
-- living holder renews it.
local function left_ms(key)
  local left = call('PTTL', key)
  if left <= tonumber(lease_ms) or redis.pcall('HLEN', key) ~= 1 then return left end
  local fields = redis.pcall('HKEYS', key) -- some users of Redis have no permission for it
  if fields.err or fields[1]:sub(1, #kind) ~= kind then return left end
  call('PEXPIRE', key, lease_ms)
  return tonumber(lease_ms)
end

local refused = {}
for position = 1, #KEYS do
  local key = KEYS[position]
  if may_take(key) then
    call('HSET', key, holder, 1)
    call('PEXPIRE', key, lease_ms)
  else
    refused[#refused + 1] = position
    refused[#refused + 1] = left_ms(key)
  end
end
return refused
