-- Admits an order as admit.lua does, under a key that the caller chose. A second request under the same key
-- asks for the same order. The order and its key are written in one step: a failover loses both or none.
-- KEYS[1] stock, KEYS[2] buyers, KEYS[3] voucher, KEYS[4] journal, KEYS[5] stream: as in admit.lua
-- Behind them the key: string 'order id digest', of one caller's key, user and voucher
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] voucher id, ARGV[4] quantity, ARGV[5] traceparent: as in
-- admit.lua. The order id is for a key that is new; a refusal leaves the key as it was
-- Behind them a digest of the whole request, 64 letters or digits at most; then for how many milliseconds
-- Redis keeps the key of an admitted order, counted from the last request under it
-- Reply array: an answer; the order id of this request, or of the first one under this key
-- Answers 0 1 2 3 4 5 6 7 8 11 12, Errors BADARG IDTAKEN OTHERQTY: as in admit.lua
-- Error OTHERREQ: an earlier request under this key was another one
local function decide()
  --- @include "../src/admit"
end
--- @include "by_key"
