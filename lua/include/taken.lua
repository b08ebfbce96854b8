-- The error IDTAKEN: the order that the journal holds is another user's.
-- Reads: find; entry, the journal's note of the order or nothing; user. Defines: taken, the text of the
-- error, or nothing.
local taken = entry and not find(entry, '"by":"' .. user .. '"', 1, true)
  and 'IDTAKEN the order id belongs to an order of another user'
