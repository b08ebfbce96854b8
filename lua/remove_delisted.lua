-- Removes all keys of a delisted voucher, in one step: from then on requests for an order get the answer
-- that no stock is loaded, and releases change nothing here. Before the call, a comparison since the
-- delisting must have shown that Redis and MySQL agree.
-- KEYS[1] stock: string, units left; KEYS[2] buyers: set of the users who were admitted
-- KEYS[3] voucher: hash of, among others, delisted (since when, in Unix milliseconds) and change (the note of
-- lua/adjust_stock.lua); KEYS[4] journal: hash, order id -> stock movement as JSON
-- KEYS[5] stock: under its name for a voucher with limits; KEYS[6] limits, KEYS[7] uses: hashes
-- ARGV[1] delisted: the time that the caller read there
-- Reply 0: the keys do not exist, for example after a first call whose reply was lost
-- Reply 1: removed
-- Reply 2: refused, it is not delisted, or was delisted at another time
-- Reply 3: refused, units are being added or taken
-- Written by `just lua` from lua/src/remove_delisted.lua: change that file, not this one
local sale_key, moment = KEYS[3], ARGV[1]
local call, find = redis.call, string.find
if call('EXISTS', unpack(KEYS)) == 0 then return 0 end
local delisted, change = unpack(call('HMGET', sale_key, 'delisted', 'change'))
if not delisted or delisted ~= moment then return 2 end
if change and find(change, '"state":"open"', 1, true) then return 3 end
call('UNLINK', unpack(KEYS))
return 1
