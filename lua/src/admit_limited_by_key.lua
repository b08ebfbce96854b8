-- Admits an order of a voucher with limits as admit_limited.lua does, under a key of the caller's choice: as
-- admit_by_key.lua does without limits.
-- KEYS[1] stock, KEYS[2] buyers, KEYS[3] voucher, KEYS[4] journal, KEYS[5] stream, KEYS[6] limits, KEYS[7]
-- uses, KEYS[8] limits and KEYS[9] uses of the campaign or neither: as in admit_limited.lua
-- Behind them the key: as in admit_by_key.lua
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] voucher id, ARGV[4] quantity, ARGV[5] traceparent, ARGV[6] and
-- all that follow: names and values: as in admit_limited.lua. Behind them digest and milliseconds: as in
-- admit_by_key.lua
-- Reply array: an answer; the order id of this request, or of the first one under this key
-- Answers 0 1 2 3 4 5 6 7 8 11, Errors BADARG IDTAKEN OTHERQTY: as in admit_limited.lua
-- Errors NOLIMITS CAMPAIGN NOSUBJECT BADUSES: as in admit_limited.lua
-- Answer array: 9; name of the limit; orders left; units left; when it opens again in Unix ms
-- Answer array: 10; name of the rate; milliseconds to wait
-- Error OTHERREQ: an earlier request under this key was another one
local function decide()
  --- @include "../src/admit_limited"
end
--- @include "by_key"
