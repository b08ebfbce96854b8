-- Admits one order of a voucher that has limits, as admit.lua does, and counts what it uses of them in the
-- same step. A refusal or an error leaves no trace. The clock is that of this server; where it went back, the
-- window that is stored goes on.
-- KEYS[1] stock: string, units left, under the name that it has while there are limits
-- KEYS[2] buyers, KEYS[3] voucher, KEYS[4] journal, KEYS[5] stream: as in admit.lua
-- KEYS[6] limits: hash of the voucher: rules (see README), campaign (its id, missing: none), slots ('1': a
-- user may hold several orders, each in a slot of its own, 1 .. 31; otherwise one)
-- KEYS[7] uses: hash of the voucher: what is counted, by rule and subject, and u:<user>, the slots in use
-- KEYS[8] limits, KEYS[9] uses: of its campaign; absent where there is none
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] voucher id, ARGV[4] quantity, ARGV[5] traceparent: as there
-- ARGV[6] and all that follow: name, value, name, value, ... of subjects such as phone, at most 16; values of
-- 1 .. 64 of A-Z a-z 0-9 _ . : + / = -
-- Reply 0: admitted; Reply 1: sold out; Reply 2: this user has an order; Reply 3: no stock is loaded
-- Reply 4: the sale has not begun; Reply 5: the sale is over; Reply 6: this very order was admitted before
-- Reply 7: the sale is paused; Reply 8: this very order was admitted and given back
-- Reply array: 9, name of the limit, orders left, units left, when it opens again in Unix ms; '' for no
-- bound. The name is slots where the user holds 31 orders
-- Reply array: 10, name of the rate, milliseconds to wait
-- Error BADARG: an argument or the stock is not what it must be
-- Error NOLIMITS: the voucher has no limits: ask admit.lua
-- Error CAMPAIGN: the voucher is in a campaign, whose id follows, and KEYS[8] and KEYS[9] are not its hashes
-- Error NOSUBJECT: a limit counts by a subject that was not sent, whose name follows
-- Error IDTAKEN: the order id belongs to an order of another user
-- Error OTHERQTY: this order was admitted before, with another quantity
local call, find, floor, match, id = redis.call, string.find, math.floor, string.match, '^[1-9]%d*$'
local order, user, voucher, quantity, traceparent = unpack(ARGV, 1, 5)
local max = '9223372036854775807'
local function is_id(text) return find(text, id) and (#text < 19 or #text == 19 and text <= max) end
local given = { user = user }
local is_good = (#KEYS == 7 or #KEYS == 9) and #ARGV >= 5 and #ARGV <= 37 and #ARGV % 2 == 1 and is_id(order)
  and is_id(user) and is_id(voucher) and #traceparent <= 128 and find(quantity, '^[1-9]%d?%d?%d?%d?$')
  and tonumber(quantity) <= 10000
for at = 6, #ARGV, 2 do
  local name, value = ARGV[at], ARGV[at + 1] or ''
  is_good = is_good and name ~= 'user' and #value <= 64 and find(value, '^[%w_.:+/=-]+$')
  given[name] = value
end
if not is_good then
  return redis.error_reply('BADARG wanted: 7 or 9 keys, ids, quantity, traceparent, names and values')
end
local entry = call('HGET', KEYS[4], order)
if entry and find(entry, '"action":"release"', 1, true) then return 8 end
if entry and not find(entry, '"by":"' .. user .. '"', 1, true) then
  return redis.error_reply('IDTAKEN the order id belongs to an order of another user')
elseif entry and not find(entry, '"change":-' .. quantity .. ',', 1, true) then
  return redis.error_reply('OTHERQTY this order was admitted before, with another quantity')
elseif entry then return 6 end
local sale = call('HMGET', KEYS[3], 'begin_ms', 'end_ms', 'state')
if sale[3] == 'paused' then return 7 end
local limits = call('HMGET', KEYS[6], 'rules', 'campaign', 'slots')
if not limits[1] then return redis.error_reply('NOLIMITS the voucher has no limits: ask admit.lua') end
local common = limits[2] and KEYS[9] and call('HMGET', KEYS[8], 'rules', 'campaign') or {}
if limits[2] and common[2] ~= limits[2] then
  return redis.error_reply('CAMPAIGN ' .. limits[2] .. ' needs its hashes as keys 8 and 9')
end
local stock, time = call('GET', KEYS[1]), call('TIME')
if not stock then return 3 end
if #stock > 13 or stock ~= '0' and not find(stock, '^%-?[1-9]%d*$') then
  return redis.error_reply('BADARG the stock is no number')
end
local left, now_s, units = stock - quantity, tonumber(time[1]), tonumber(quantity)
local now_ms, now_us = time[1] .. string.sub('00000' .. time[2], -6, -4), now_s * 1000000 + time[2]
if sale[1] and now_ms - sale[1] < 0 then return 4 end
if sale[2] and now_ms - sale[2] >= 0 then return 5 end
if left < 0 then return 1 end
-- Days since 1970-01-01 <-> months since year 0: http://howardhinnant.github.io/date_algorithms.html
local function month_of(days)
  local z = days + 719468
  local of_era = z % 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local from_march = floor((5 * (of_era - 365 * year - floor(year / 4) + floor(year / 100)) + 2) / 153)
  return (year + 400 * floor(z / 146097)) * 12 + from_march + 2
end
local function first_day_of(month)
  local year, from_march = floor((month - 2) / 12), (month - 2) % 12
  return year * 365 + floor(year / 4) - floor(year / 100) + floor(year / 400)
    + floor((153 * from_march + 2) / 5) - 719468
end
local function window_at(window, offset) -- its number
  if window == 'sale' then return 0 end
  local days = floor((now_s + offset) / 86400)
  return window == 'day' and days or window == 'month' and month_of(days) or floor(now_s / window)
end
local function opens_ms(window, offset, number) -- when the window behind it begins
  if window == 'sale' then return '' end
  if window ~= 'day' and window ~= 'month' then return string.format('%.0f', (number + 1) * window * 1000) end
  local day = window == 'day' and number + 1 or first_day_of(number + 1)
  return string.format('%.0f', (day * 86400 - offset) * 1000)
end
local rates, uses, refusal, missing = {}, {}, nil, nil
local function count(rules, key, scope, first) -- what to write into a hash of uses, unless a limit is reached
  local fields, ruled, writes = first and { first } or {}, {}, {}
  for rule in string.gmatch(rules, '[^;]+') do
    local number, name, subject, window, a, b, c = match(rule, '^(%d+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+)$')
    local value = subject == '*' and '' or given[subject]
    missing = missing or not value and subject
    if window == 'order' then
      if units > tonumber(c) then refusal = refusal or { 9, name, '', c, '' } end
    else
      fields[#fields + 1] = number .. ':' .. (value or '')
      ruled[#fields] = { number, name, value, window, tonumber(a), b, c }
    end
  end
  if missing or refusal or #fields == 0 then return writes end
  local stored = call('HMGET', key, unpack(fields))
  for n, rule in pairs(ruled) do
    local number, name, value, window, offset, most, most_units = unpack(rule)
    if window == 'rate' then
      rates[#rates + 1] = { name, offset, tonumber(most), tonumber(stored[n] or 0), writes, fields[n] }
    else
      local at, orders, used = match(stored[n] or '', '^(%d+):(%d+):(%d+)$')
      local now_at = window_at(window, offset)
      if at and tonumber(at) >= now_at then now_at = tonumber(at) else orders, used = 0, 0 end
      local rest = most ~= '-' and most - orders or nil
      local rest_units = most_units ~= '-' and most_units - used or nil
      if rest and rest < 1 or rest_units and rest_units < units then
        local function shown(number) return number and string.format('%d', math.max(number, 0)) or '' end
        refusal = refusal or { 9, name, shown(rest), shown(rest_units), opens_ms(window, offset, now_at) }
      end
      writes[#writes + 1] = fields[n]
      writes[#writes + 1] = string.format('%d:%d:%d', now_at, orders + 1, used + units)
      uses[#uses + 1] = string.format('%s%s,%d,%s', scope, number, now_at, value)
    end
  end
  return writes, stored[1]
end
local own, slots = count(limits[1], KEYS[7], '', limits[3] and 'u:' .. user)
local shared = {}
if limits[2] and not (missing or refusal) then
  shared = count(common[1] or '', KEYS[9], 'c' .. limits[2] .. '.')
end
if missing then return redis.error_reply('NOSUBJECT ' .. missing) end
if not limits[3] and call('SISMEMBER', KEYS[2], user) == 1 then return 2 end
local slot = 1
if limits[3] then
  slots = tonumber(slots or call('SISMEMBER', KEYS[2], user))
  while slot < 32 and floor(slots / 2 ^ (slot - 1)) % 2 == 1 do slot = slot + 1 end
  if slot == 32 then return { 9, 'slots', '0', '', '' } end
  own[#own + 1], own[#own + 2] = 'u:' .. user, string.format('%d', slots + 2 ^ (slot - 1))
end
if refusal then return refusal end
for _, rate in ipairs(rates) do -- GCRA, as redis-cell has it: a clock that jumped costs a burst at most
  local name, period_us, burst, stored, writes, field = unpack(rate)
  local next_us = math.max(now_us, math.min(stored, now_us + period_us * burst)) + period_us
  local wait_us = next_us - period_us * burst - now_us
  if wait_us > 0 then return { 10, name, math.ceil(wait_us / 1000) } end
  writes[#writes + 1], writes[#writes + 2] = field, string.format('%.0f', next_us)
end
local note = '{"action":"admit","from":' .. stock .. ',"to":' .. string.format('%d', left) .. ',"change":-'
  .. quantity .. ',"by":"' .. user .. '","timestamp":' .. now_ms .. ',"slot":' .. slot .. ',"uses":"'
  .. table.concat(uses, ' ') .. '"}'
local fields = { 'userId', user, 'voucherId', voucher, 'id', order, 'uses', table.concat(uses, ' ') }
if quantity ~= '1' then fields[#fields + 1], fields[#fields + 2] = 'quantity', quantity end
if slot ~= 1 then fields[#fields + 1], fields[#fields + 2] = 'slot', slot end
if traceparent ~= '' then fields[#fields + 1], fields[#fields + 2] = 'traceparent', traceparent end
local marked = redis.pcall('SADD', KEYS[2], user)
if type(marked) == 'table' then return marked end
local noted = redis.pcall('HSET', KEYS[4], order, note)
local added = type(noted) == 'table' and noted or redis.pcall('XADD', KEYS[5], '*', unpack(fields))
if type(added) == 'table' then
  if type(noted) ~= 'table' then call('HDEL', KEYS[4], order) end
  if marked == 1 then call('SREM', KEYS[2], user) end
  return added
end
if #own > 0 then call('HSET', KEYS[7], unpack(own)) end
if #shared > 0 then call('HSET', KEYS[9], unpack(shared)) end
call('DECRBY', KEYS[1], quantity)
return 0
