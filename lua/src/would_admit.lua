-- Answers what admit.lua would answer now. Changes nothing.
-- KEYS[1] stock, KEYS[2] buyers, KEYS[3] voucher, KEYS[4] journal, KEYS[5] stream: as in admit.lua
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] voucher id, ARGV[4] quantity, ARGV[5] traceparent: as there
-- Answers 0 1 2 3 4 5 6 7 8 11 12, Errors BADARG IDTAKEN OTHERQTY: as in admit.lua
-- Reply 0: it would be admitted
--- @include "admit_checks"
if call('SISMEMBER', buyers, user) == 1 then return refuse(2) end
return refuse(0)
