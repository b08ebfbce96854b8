-- Takes or renews leases on several names, each independently, in one round trip. A lease that the same
-- token holds already is renewed. So a call that is sent twice does no harm, and the same call renews.
-- KEYS[1] and all that follow: string, one per name; its value is the token of the holder
-- ARGV[1] token: identifies the holder; unique per batch or process. Leases 'here' whose tokens begin with
-- the same text, up to the first '-', are of one kind: a lease of this kind that would last for longer than
-- lease_ms is shortened
-- ARGV[2] lease_ms: milliseconds until the lease expires
-- ARGV[3] known: 'here' for leases that have no value after a restart or a failover: Redis writes them
-- neither to the AOF nor to replicas, which saves half of their cost; 'everywhere' for all others
-- ARGV[4] and all that follow: tokens of the caller under which no work is done any more, though leases may
-- exist: those of calls whose reply it never got. Their leases are taken over.
-- Reply list: the positions in KEYS (from 1) that another token holds; empty if all are held now
local token, lease_ms, known = ARGV[1], ARGV[2], ARGV[3]
local call = redis.call
if known == 'here' then
  redis.replicate_commands() -- before Redis 7, the next line needs it
  redis.set_repl(redis.REPL_NONE)
end

local ours = { [token] = true }
for place = 4, #ARGV do
  ours[ARGV[place]] = true
end
local kind = known == 'here' and token:match('^[^-]*-')

-- Redisson keeps a hash under the same name: that is another program's lock, too, and no error.
local function take_from_holder(key)
  local holder = redis.pcall('GET', key)
  if ours[holder] then
    return call('SET', key, token, 'PX', lease_ms)
  end
  -- No lease of this kind lasts for longer, unless the clock was set back: then it lasts for hours. It is
  -- only shortened: a holder that lives renews it.
  if kind and type(holder) == 'string' and holder:sub(1, #kind) == kind then
    local left_ms = redis.pcall('PTTL', key) -- some users of Redis have no permission for it
    if type(left_ms) == 'number' and left_ms > tonumber(lease_ms) then
      call('PEXPIRE', key, lease_ms)
    end
  end
end

local held -- a lease that is held now: COPY copies value and expiry at less than half the cost of a SET
local refused = {}
for position = 1, #KEYS do
  local key = KEYS[position]
  local taken
  if held and key ~= held then
    taken = call('COPY', held, key) == 1
  else
    taken = call('SET', key, token, 'NX', 'PX', lease_ms)
  end
  if taken or take_from_holder(key) then
    held = held or key
  else
    refused[#refused + 1] = position
  end
end
return refused
