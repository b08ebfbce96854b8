-- Ends the locks that this holder has, in the layout of Redisson, and tells those who wait for them. Locks of
-- other holders stay. The channel of a lock is Redisson's: a name without '{' is put in braces.
-- KEYS[1] and all that follow: hash, one per name; its only field is the holder: see lock_redisson.lua
-- ARGV[1] holder: unique per batch
-- Reply 0: this holder had no lock any more
-- Reply above 0: how many locks this holder still had, and which ended now
-- If Redis refuses PUBLISH or SPUBLISH, the locks have ended, and the reply is the error of Redis.
-- Written by `just lua` from lua/src/unlock_redisson.lua: change that file, not this one
local holder = ARGV[1]

-- Redisson before 3.22 subscribes with SUBSCRIBE, later ones in a cluster with SSUBSCRIBE. Redis before 7.0
-- does not know SPUBLISH.
local function tell(key)
  local channel = 'redisson_lock__channel:' .. (key:find('{', 1, true) and key or '{' .. key .. '}')
  local told = redis.pcall('PUBLISH', channel, '0')
  local told_in_slot = redis.pcall('SPUBLISH', channel, '0')
  if type(told) == 'table' then return told end
  if type(told_in_slot) == 'table' and not told_in_slot.err:find('Unknown', 1, true) then
    return told_in_slot
  end
end

local ended, failure = 0, nil
for place = 1, #KEYS do
  local key = KEYS[place]
  if redis.pcall('HDEL', key, holder) == 1 then
    ended = ended + 1
    failure = tell(key) or failure
  end
end
if ended == 0 then return 0 end
return failure or ended
