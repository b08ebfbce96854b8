-- Reads the counts of some fields, and the time at which they were read, in one step. Changes nothing.
-- KEYS[1] uses: hash, as in admit_limited.lua
-- ARGV[1] and all that follow: the fields, 1 to 500
-- Reply list: the time in Unix milliseconds, by the clock of Redis; then the value of each field, null for
-- a missing one
-- Error BADARG: an argument is invalid
local uses, call = KEYS[1], redis.call
if #KEYS ~= 1 or #ARGV == 0 or #ARGV > 500 then return redis.error_reply('BADARG expected: uses; fields') end
--- @include "time"
return { tonumber(now_ms), unpack(call('HMGET', uses, unpack(ARGV))) }
