-- The check of the bounds of a sale window.
-- Reads: find. Defines: is_window(begin_ms, end_ms), whether each is Unix milliseconds, or '' for no bound,
-- and the begin comes before the end.
local function is_window(begin_ms, end_ms)
  return #begin_ms <= 14 and find(begin_ms, '^%d*$') and #end_ms <= 14 and find(end_ms, '^%d*$')
    and (begin_ms == '' or end_ms == '' or end_ms - begin_ms > 0)
end
