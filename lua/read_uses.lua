-- Reads the counts of some fields, and the time at which they were read, in one step. Changes nothing.
-- KEYS[1] uses: hash, as in admit_limited.lua
-- ARGV[1] and all that follow: the fields, 1 to 500
-- Reply list: the time in Unix milliseconds, by the clock of Redis; then the value of each field, null for
-- a missing one
-- Error BADARG: an argument is invalid
-- Written by `just lua` from lua/src/read_uses.lua: change that file, not this one
local uses, call = KEYS[1], redis.call
if #KEYS ~= 1 or #ARGV == 0 or #ARGV > 500 then return redis.error_reply('BADARG expected: uses; fields') end
local time = call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
return { tonumber(now_ms), unpack(call('HMGET', uses, unpack(ARGV))) }
