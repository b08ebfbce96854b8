-- The busy marker of a sale: the field is 'until <ms>' or 'from <ms>'.
-- Reads: find; sale, of which sale[4] is the field, or nothing; now_ms. Defines: is_busy.
local is_busy = sale[4]
  and (find(sale[4], '^until') == 1) == (now_ms - string.match(sale[4], '%d+') < 0)
