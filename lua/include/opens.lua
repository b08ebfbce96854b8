-- The time at which a limit opens again, which is the end of its window.
-- Reads: format; window, offset as a rule has them; number_now, the number of the window. Defines: opens_ms,
-- as text, '' if it never opens again.
local opens_ms = ''
if window ~= 'sale' then
  local opens_s = (number_now + 1) * (tonumber(window) or 86400)
  if window == 'month' then
    local year, from_march = (number_now - 1 - (number_now - 1) % 12) / 12, (number_now - 1) % 12
    opens_s = (year * 365 + math.floor(year / 4) - math.floor(year / 100) + math.floor(year / 400)
      + math.floor((153 * from_march + 2) / 5) - 719468) * 86400
  end
  if window == 'day' or window == 'month' then opens_s = opens_s - offset end
  opens_ms = format('%.0f', opens_s * 1000)
end
