-- The sale window, by the clock of this server.
-- Reads: sale, of which sale[1] is begin_ms and sale[2] is end_ms, or nothing; now_ms. Defines: closed, a
-- reply, or nothing while the sale is on.
local closed
if sale[1] and now_ms - sale[1] < 0 then
  closed = 4
elseif sale[2] and now_ms - sale[2] >= 0 then
  closed = 5
end
