-- Answers what admit_limited.lua would answer now. Changes nothing.
-- KEYS[1] stock, KEYS[2] buyers, KEYS[3] voucher, KEYS[4] journal, KEYS[5] stream, KEYS[6] limits, KEYS[7]
-- uses, KEYS[8] limits and KEYS[9] uses of the campaign or neither: as in admit_limited.lua
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] voucher id, ARGV[4] quantity, ARGV[5] traceparent, ARGV[6] and
-- all that follow: names and values: as in admit_limited.lua
-- Answers 0 1 2 3 4 5 6 7 8 11, Errors BADARG IDTAKEN OTHERQTY: as in admit_limited.lua
-- Errors NOLIMITS CAMPAIGN NOSUBJECT BADUSES: as in admit_limited.lua
-- Reply 0: it would be admitted
-- Reply array: 9; name of the limit; orders left; units left; when it opens again in Unix ms
-- Reply array: 10; name of the rate; milliseconds to wait
-- Written by `just lua` from lua/src/would_admit_limited.lua: change that file, not this one
local call, find, match, format = redis.call, string.find, string.match, string.format
local stock_key, buyers, sale_key, journal, stream = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local limits, uses, campaign_limits, campaign_uses = KEYS[6], KEYS[7], KEYS[8], KEYS[9]
local order, user, voucher, quantity, traceparent = ARGV[1], ARGV[2], ARGV[3], ARGV[4], ARGV[5]
local bad = 'BADARG expected: 7 or 9 keys, ids, quantity, traceparent, names and values, a numeric stock'
if #KEYS ~= 7 and #KEYS ~= 9 or #ARGV < 5 or #ARGV > 37 or #ARGV % 2 == 0
  or quantity ~= '1' and (not find(quantity, '^[1-9]%d?%d?%d?%d?$') or tonumber(quantity) > 10000) then
  return redis.error_reply(bad)
end
local has_slots, units = false, tonumber(quantity)
-- The journal's answer comes first. Then a user who has an order gets reply 2. refuse names few locals of
-- the script, because each one that it captures costs every admission.
local function refuse(reply)
  local call, find, buyers, journal = redis.call, string.find, KEYS[2], KEYS[4]
  local user, quantity = ARGV[2], ARGV[4]
  local entry = call('HGET', journal, ARGV[1])
  if entry then
    local taken = entry and not find(entry, '"by":"' .. user .. '"', 1, true)
      and 'IDTAKEN the order id belongs to an order of another user'
    local known = 'OTHERQTY this order was admitted before with another quantity'
    if find(entry, '"action":"release"', 1, true) then
      known = 8
    elseif taken then
      known = taken
    elseif find(entry, '"change":-' .. quantity .. ',', 1, true) then
      known = 6
    end
    if type(known) == 'string' then return redis.error_reply(known) end
    return known
  end
  local may_be_buyer = not has_slots and type(reply) == 'table' and not reply.err
  if may_be_buyer and call('SISMEMBER', buyers, user) == 1 then return 2 end
  return reply
end
local stock = call('GET', stock_key)
-- Most requests in a rush end here.
if stock == '0' and not call('HGET', journal, order) then return 1 end
local sale = call('HMGET', sale_key, 'begin_ms', 'end_ms', 'state', 'brake')
if sale[3] == 'paused' then return refuse(7) end
local rules, common = call('HGET', limits, 'rules'), nil
local slots_word, campaign = match(rules or '', '^([01]) ([%d-]+)')
if not campaign then
  return refuse(redis.error_reply('NOLIMITS the voucher has no limits: call admit.lua'))
end
has_slots = slots_word == '1'
if campaign ~= '-' then
  common = campaign_uses and call('HGET', campaign_limits, 'rules') or ''
  if match(common, '^%d ([%d-]+)') ~= campaign then
    return refuse(redis.error_reply('CAMPAIGN ' .. campaign .. ' needs its hashes as keys 8 and 9'))
  end
end
if not stock then return refuse(3) end
if not tonumber(stock) then return redis.error_reply(bad) end
local left = stock - quantity
local time = call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
local now_s = tonumber(time[1])
local closed
if sale[1] and now_ms - sale[1] < 0 then
  closed = 4
elseif sale[2] and now_ms - sale[2] >= 0 then
  closed = 5
end
if closed then return refuse(closed) end
if left < 0 then return refuse(1) end
local is_busy = sale[4]
  and (find(sale[4], '^until') == 1) == (now_ms - string.match(sale[4], '%d+') < 0)
if is_busy then return refuse(11) end
local rates, used, known = nil, '', {}
-- Returns what to write into a hash of uses; or nothing, and the refusal.
local function count(all, counters, scope)
  local writes = {}
  for number, name, subject, window, offset, most, most_units in
    string.gmatch(all, '(%d+) ([^ ;]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ]+) ([^ ;]+)') do
    local value = subject == 'user' and user or subject == '*' and ''
    for named = 6, value and 0 or #ARGV, 2 do
      value = value or ARGV[named] == subject and ARGV[named + 1]
    end
    if not value then return nil, redis.error_reply('NOSUBJECT ' .. subject) end
    known[subject] = value ~= '' -- the subject of a rule is a name
    local field = number .. ':' .. value
    if window == 'order' then
      if units > tonumber(most_units) then return nil, { 9, name, '', most_units, '' } end
    elseif window == 'rate' then
      rates = rates or {}
      local stored = call('HGET', counters, field)
      rates[#rates + 1] = { name, tonumber(offset), tonumber(most), writes, field, stored }
    else
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
      if most ~= '-' and most - orders < 1 or most_units ~= '-' and most_units - of_units < units then
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
        local orders_left, units_left = '', ''
        if most ~= '-' then orders_left = format('%d', math.max(most - orders, 0)) end
        if most_units ~= '-' then units_left = format('%d', math.max(most_units - of_units, 0)) end
        return nil, { 9, name, orders_left, units_left, opens_ms }
      end
      local counted_at = format('%d', number_now)
      local becomes
      if orders == 0 then
        becomes = counted_at .. ':1:' .. quantity
      else
        becomes = format('%s:%d:%d', counted_at, orders + 1, of_units + units)
      end
      writes[#writes + 1], writes[#writes + 2] = field, becomes
      used = used .. (used == '' and '' or ' ') .. scope .. number .. ',' .. counted_at .. ',' .. value
    end
  end
  return writes
end
local own, shared, refusal
own, refusal = count(rules, uses, '')
if common and own then shared, refusal = count(common, campaign_uses, 'c' .. campaign .. '.') end
if refusal then return refuse(refusal) end
local slot = 1
if has_slots then
  local slots = tonumber(call('HGET', uses, 'u:' .. user) or call('SISMEMBER', buyers, user))
  if not slots or slots < 0 or slots > 2147483647 or slots % 1 ~= 0 then
    return refuse(redis.error_reply('BADUSES u:' .. user))
  end
  while slot < 32 and math.floor(slots / 2 ^ (slot - 1)) % 2 == 1 do slot = slot + 1 end
  if slot == 32 then return refuse({ 9, 'slots', '0', '', '' }) end
  own[#own + 1], own[#own + 2] = 'u:' .. user, format('%d', slots + 2 ^ (slot - 1))
end
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
local values, first, last = ARGV, 1, 3
local are_ids = true
for at = first, last do
  local id = values[at] or ''
  if not find(id, '^[1-9]%d*$') or #id > 18 and (#id > 19 or id > '9223372036854775807') then
    are_ids = false
  end
end
local is_good = are_ids and #stock <= 13 and find(stock, '^%-?[1-9]%d*$') and #traceparent <= 128
for at = 6, #ARGV, 2 do
  local name, value = ARGV[at], ARGV[at + 1]
  is_good = is_good and #value <= 64 and find(value, '^[%w_.:+/=-]+$')
    and name ~= 'user' and known[name] ~= 0
    and (known[name] or #name <= 32 and find(name, '^%l[%l%d_]*$'))
  known[name] = 0
end
if not is_good then return redis.error_reply(bad) end
if not has_slots and call('SISMEMBER', buyers, user) == 1 then return refuse(2) end
return refuse(0)
