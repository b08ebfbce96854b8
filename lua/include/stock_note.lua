-- The journal's note of units that are added to a sale or taken from it.
-- Reads: stock, units, by, now_ms. Defines: action; movement, the note.
local action = units - 0 < 0 and 'take' or 'add'
local movement = '{"action":"' .. action .. '","from":' .. stock .. ',"to":'
  .. string.format('%.0f', stock + units) .. ',"change":' .. units .. ',"by":"' .. by
  .. '","timestamp":' .. now_ms .. '}'
