-- The sale window, by the clock of this server.
-- Reads: sale, with begin_ms as sale[1] and end_ms as sale[2], each or nothing; now_ms. Defines: closed, a
-- reply, or nothing while the sale is on.
local closed
if sale[1] and now_ms - sale[1] < 0 then
  closed = 4
elseif sale[2] and now_ms - sale[2] >= 0 then
  closed = 5
end
