-- The journal's note of a release, which keeps the admission that it ends.
-- Reads: stock, as text, or nothing; change, the units as a number; by, user, now_ms; entry, admitted,
-- admitted_ms as "admitted" has them. Defines: note.
local note = '{"action":"release","from":' .. (stock or 'null') .. ',"to":'
  .. (stock and stock + change or 'null') .. ',"change":' .. (stock and change or 0) .. ',"by":"' .. by
  .. '","timestamp":' .. now_ms
if admitted then
  note = note .. ',"admitted":{"user":"' .. user .. '","change":' .. admitted .. ',"timestamp":'
    .. admitted_ms .. ',"from":' .. (string.match(entry, '"from":(%-?%d+)') or 'null') .. '}'
end
note = note .. '}'
