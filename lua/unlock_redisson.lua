-- Releases the locks of this holder, in the layout of Redisson, and publishes each release. Locks of other
-- holders stay. The channel of a lock is Redisson's: a name without '{' is put in braces.
-- KEYS[1] and all that follow: hash, one per name; its only field is the holder: see lock_redisson.lua
-- ARGV[1] holder: unique per batch
-- Reply 0: this holder had no lock any more
-- Reply above 0: the number of released locks
-- If Redis refuses PUBLISH or SPUBLISH, the locks are released, and the reply is the error of Redis.
-- Written by `just lua` from lua/src/unlock_redisson.lua: change that file, not this one
local holder, has_shards = ARGV[1], true

-- Redisson before 3.22 subscribes with SUBSCRIBE, later ones in a cluster with SSUBSCRIBE. Redis before 7.0
-- does not know SPUBLISH.
local function publish(key)
  local channel = 'redisson_lock__channel:' .. (key:find('{', 1, true) and key or '{' .. key .. '}')
  local published = redis.pcall('PUBLISH', channel, '0')
  if type(published) == 'table' then return published end
  if not has_shards then return end
  published = redis.pcall('SPUBLISH', channel, '0')
  if type(published) == 'number' then return end
  has_shards = not published.err:find('Unknown', 1, true)
  if has_shards then return published end
end

local released, failure = 0, nil
for place = 1, #KEYS do
  local key = KEYS[place]
  if redis.pcall('HDEL', key, holder) == 1 then
    released = released + 1
    failure = publish(key) or failure
  end
end
if released == 0 then return 0 end
return failure or released
