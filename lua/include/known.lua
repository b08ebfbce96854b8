-- The answer for an order that the journal holds already.
-- Reads: find; entry, the journal's note of the order; user, quantity. Defines: taken, as its include does;
-- known, a reply or the text of an error.
--- @include "taken"
local known = 'OTHERQTY this order was admitted before with another quantity'
if find(entry, '"action":"release"', 1, true) then
  known = 8
elseif taken then
  known = taken
elseif find(entry, '"change":-' .. quantity .. ',', 1, true) then
  known = 6
end
