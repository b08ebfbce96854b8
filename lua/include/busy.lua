-- The busy mark of a sale: the field is 'until <ms>' or 'from <ms>'.
-- Reads: find; sale, with the field as sale[4], or nothing; now_ms. Defines: is_busy.
local is_busy = sale[4]
  and (find(sale[4], '^until') == 1) == (now_ms - string.match(sale[4], '%d+') < 0)
