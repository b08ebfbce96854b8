-- The admission that the journal holds of an order.
-- Reads: entry, the journal's note of the order or nothing. Defines: admitted, the change of the stock by
-- the admission, and admitted_ms, its time, both as text; nothing if the note is not an admission.
local admitted, admitted_ms =
  string.match(entry or '', '"action":"admit".*"change":(%-?%d+).*"timestamp":(%d+)')
