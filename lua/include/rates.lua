-- The rate limits that an order must keep to: GCRA, as redis-cell implements it.
-- Reads: format, refuse; time, now_s; rates, each with name, period, burst, the writes to which it adds,
-- field, and the stored value or nothing.
for at = 1, rates and #rates or 0 do
  local name, period_us, burst, writes, field, stored = unpack(rates[at])
  local now_us, resting_us = now_s * 1000000 + time[2], tonumber(stored or 0)
  if not resting_us then return refuse(redis.error_reply('BADUSES ' .. field)) end
  local most_us = now_us + period_us * burst
  -- The clock went back since. A refusal writes nothing, so one order must pass before the value is right.
  if resting_us > most_us then resting_us = most_us - period_us end
  local next_us = math.max(now_us, resting_us) + period_us
  local wait_us = next_us - most_us
  if wait_us > 0 then return refuse({ 10, name, math.ceil(wait_us / 1000) }) end
  writes[#writes + 1], writes[#writes + 2] = field, format('%.0f', next_us)
end
