-- The window of a limit that counts, and the orders and units counted in it. a - a % b is the largest
-- multiple of b up to a.
-- Reads: call, match; counters, the key of a hash; field; window, offset as a rule has them; now_s. Defines:
-- number_now, the number of the window; orders, of_units: the counts in it before this order.
local stored, number_now, orders, of_units = call('HGET', counters, field), 0, 0, 0
if window == 'day' or window == 'month' then
  local seconds = now_s
  if offset ~= '0' then seconds = now_s + offset end
  number_now = (seconds - seconds % 86400) / 86400
  if window == 'month' then
    -- Days since 1970-01-01, months since year 0: http://howardhinnant.github.io/date_algorithms.html
    local days = number_now + 719468
    local of_era = days % 146097
    local of_year = of_era - (of_era - of_era % 1460) / 1460 + (of_era - of_era % 36524) / 36524
      - (of_era - of_era % 146096) / 146096
    local year = (of_year - of_year % 365) / 365
    of_year = 5 * (of_era - 365 * year - (year - year % 4) / 4 + (year - year % 100) / 100) + 2
    number_now = (year + (days - of_era) / 146097 * 400) * 12 + (of_year - of_year % 153) / 153 + 2
  end
elseif window ~= 'sale' then
  number_now = (now_s - now_s % window) / window
end
if stored then
  local was_at, was_orders, was_units = match(stored, '^(%d+):(%d+):(%d+)$')
  if not was_at then return nil, redis.error_reply('BADUSES ' .. field) end
  if was_at - number_now >= 0 then
    number_now, orders, of_units = was_at - 0, was_orders, was_units
  end
end
