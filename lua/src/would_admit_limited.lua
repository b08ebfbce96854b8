-- Answers what admit_limited.lua would answer now. Changes nothing.
-- KEYS[1] stock, KEYS[2] buyers, KEYS[3] voucher, KEYS[4] journal, KEYS[5] stream, KEYS[6] limits, KEYS[7]
-- uses, KEYS[8] limits and KEYS[9] uses of the campaign or neither: as in admit_limited.lua
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] voucher id, ARGV[4] quantity, ARGV[5] traceparent, ARGV[6] and
-- all that follow: names and values: as in admit_limited.lua
-- Answers 0 1 2 3 4 5 6 7 8 11, Errors BADARG IDTAKEN OTHERQTY: as in admit_limited.lua
-- Errors NOLIMITS CAMPAIGN NOSUBJECT BADUSES: as in admit_limited.lua
-- Reply 0: it would be admitted
-- Reply array: 9; name of the limit; orders left; units left; when it opens again in Unix ms
-- Reply array: 10; name of the rate; milliseconds to wait
--- @include "limited_checks"
if not has_slots and call('SISMEMBER', buyers, user) == 1 then return refuse(2) end
return refuse(0)
