-- Admits one order of a voucher that has limits, as admit.lua does, and counts what it uses of them in the
-- same step. A refusal or an error leaves no trace. The clock is that of this server; where it went back, the
-- window that is stored goes on.
-- KEYS[1] stock: string, units left, under the name that it has while there are limits
-- KEYS[2] buyers, KEYS[3] voucher, KEYS[4] journal, KEYS[5] stream: as in admit.lua
-- KEYS[6] limits: hash of the voucher: rules, see README: whether a user may hold several orders, each in a
-- slot of its own, 1 .. 31; the campaign; and the rules
-- KEYS[7] uses: hash of the voucher: what is counted, by rule and subject, and u:<user>, the slots in use
-- KEYS[8] limits, KEYS[9] uses: of its campaign; absent where there is none
-- ARGV[1] order id, ARGV[2] user id, ARGV[3] voucher id, ARGV[4] quantity, ARGV[5] traceparent: as there
-- ARGV[6] and all that follow: name, value, name, value, ... of subjects such as phone, at most 16; values of
-- 1 .. 64 of A-Z a-z 0-9 _ . : + / = -
-- Reply 0: admitted; Reply 1: sold out; Reply 2: this user has an order; Reply 3: no stock is loaded
-- Reply 4: the sale has not begun; Reply 5: the sale is over; Reply 6: this very order was admitted before
-- Reply 7: the sale is paused; Reply 8: this very order was admitted and given back
-- Reply 11: the sale is busy: workers are too far behind, or none lives
-- Reply array: 9, name of the limit, orders left, units left, when it opens again in Unix ms; '' for no
-- bound. The name is slots where the user holds 31 orders
-- Reply array: 10, name of the rate, milliseconds to wait
-- Error BADARG: an argument or the stock is not what it must be
-- Error NOLIMITS: the voucher has no limits: ask admit.lua
-- Error CAMPAIGN: the voucher is in a campaign, whose id follows, and KEYS[8] and KEYS[9] are not its hashes
-- Error NOSUBJECT: a limit counts by a subject that was not sent, whose name follows
-- Error IDTAKEN: the order id belongs to an order of another user
-- Error OTHERQTY: this order was admitted before, with another quantity
local call, find, floor, match, gmatch = redis.call, string.find, math.floor, string.match, string.gmatch
local format, id = string.format, '^[1-9]%d*$'
local order, user, voucher, quantity, traceparent = unpack(ARGV, 1, 5)
local has_slots, max = false, '9223372036854775807'
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
local function refuse(reply) -- what the journal knows comes first; and a buyer hears of having bought
  local entry = call('HGET', KEYS[4], order)
  if not entry then
    local may_be_buyer = not has_slots and type(reply) == 'table' and not reply.err
    return may_be_buyer and call('SISMEMBER', KEYS[2], user) == 1 and 2 or reply
  elseif find(entry, '"action":"release"', 1, true) then return 8
  elseif not find(entry, '"by":"' .. user .. '"', 1, true) then
    return redis.error_reply('IDTAKEN the order id belongs to an order of another user')
  elseif find(entry, '"change":-' .. quantity .. ',', 1, true) then return 6 end
  return redis.error_reply('OTHERQTY this order was admitted before, with another quantity')
end
local sale = call('HMGET', KEYS[3], 'begin_ms', 'end_ms', 'state', 'brake')
if sale[3] == 'paused' then return refuse(7) end
local slots_word, campaign, rules = match(call('HGET', KEYS[6], 'rules') or '', '^([01]) ([%d-]+);?(.*)$')
if not rules then return refuse(redis.error_reply('NOLIMITS the voucher has no limits: ask admit.lua')) end
has_slots = slots_word == '1'
local common, common_rules
if campaign ~= '-' then
  common, common_rules = match(KEYS[9] and call('HGET', KEYS[8], 'rules') or '', '^%d ([%d-]+);?(.*)$')
  if common ~= campaign then
    return refuse(redis.error_reply('CAMPAIGN ' .. campaign .. ' needs its hashes as keys 8 and 9'))
  end
end
local stock, time = call('GET', KEYS[1]), call('TIME')
if not stock then return refuse(3) end
if #stock > 13 or stock ~= '0' and not find(stock, '^%-?[1-9]%d*$') then
  return redis.error_reply('BADARG the stock is no number')
end
local left, now_s, units = stock - quantity, tonumber(time[1]), tonumber(quantity)
local now_ms, now_us = time[1] .. string.sub('00000' .. time[2], -6, -4), now_s * 1000000 + time[2]
if sale[1] and now_ms - sale[1] < 0 then return refuse(4) end
if sale[2] and now_ms - sale[2] >= 0 then return refuse(5) end
if left < 0 then return refuse(1) end
if sale[4] and (find(sale[4], '^until') == 1) == (now_ms - match(sale[4], '%d+') < 0) then
  return refuse(11) end -- 'until <ms>', or 'from <ms>'
local rates, uses, refusal, missing = {}, {}, nil, nil
-- Days since 1970-01-01 <-> months since year 0: http://howardhinnant.github.io/date_algorithms.html
local function month_at(days)
  local z = days + 719468
  local of_era = z % 146097
  local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
  local from_march = floor((5 * (of_era - 365 * year - floor(year / 4) + floor(year / 100)) + 2) / 153)
  return (year + 400 * floor(z / 146097)) * 12 + from_march + 2
end
local function reached(name, window, offset, number, rest, rest_units) -- what is left, and until when
  local function shown(left) return left and format('%d', math.max(left, 0)) or '' end
  local opens = window == 'sale' and '' or (number + 1) * (tonumber(window) or 86400)
  if window == 'month' then
    local year, from_march = floor((number - 1) / 12), (number - 1) % 12
    opens = (year * 365 + floor(year / 4) - floor(year / 100) + floor(year / 400)
      + floor((153 * from_march + 2) / 5) - 719468) * 86400
  end
  if window == 'day' or window == 'month' then opens = opens - offset end
  return { 9, name, shown(rest), shown(rest_units), opens == '' and '' or format('%.0f', opens * 1000) }
end
local function count(all, key, scope) -- what to write into a hash of uses, unless a limit is reached
  local writes, at = {}, 0
  for number, name, subject, window, offset, most, most_units in
    gmatch(all, '(%d+) (%S+) (%S+) (%S+) (%S+) (%S+) ([%d-]+)') do
    local value = subject == '*' and '' or given[subject]
    if not value then
      missing = missing or subject
    elseif window == 'order' then
      if units > tonumber(most_units) then refusal = refusal or { 9, name, '', most_units, '' } end
    elseif not refusal then
      local field = number .. ':' .. value
      local stored = call('HGET', key, field)
      if window == 'rate' then
        rates[#rates + 1] = { name, tonumber(offset), tonumber(most), tonumber(stored or 0), writes, field }
      else
        local days = floor((now_s + offset) / 86400)
        local number_now = window == 'sale' and 0 or window == 'day' and days
          or window == 'month' and month_at(days) or floor(now_s / window)
        local orders, used = 0, 0
        if stored then
          local then_at, then_orders, then_units = match(stored, '^(%d+):(%d+):(%d+)$')
          if tonumber(then_at) >= number_now then
            number_now, orders, used = tonumber(then_at), then_orders, then_units
          end
        end
        local rest, rest_units = most ~= '-' and most - orders, most_units ~= '-' and most_units - used
        if rest and rest < 1 or rest_units and rest_units < units then
          refusal = reached(name, window, offset, number_now, rest, rest_units)
        end
        writes[at + 1], writes[at + 2] = field, format('%d:%d:%d', number_now, orders + 1, used + units)
        uses[#uses + 1], at = format('%s%s,%d,%s', scope, number, number_now, value), at + 2
      end
    end
  end
  return writes
end
local own = count(rules, KEYS[7], '')
local shared = {}
if common and not (missing or refusal) then shared = count(common_rules, KEYS[9], 'c' .. campaign .. '.') end
if missing then return refuse(redis.error_reply('NOSUBJECT ' .. missing)) end
local slot = 1
if has_slots then
  local slots = tonumber(call('HGET', KEYS[7], 'u:' .. user) or call('SISMEMBER', KEYS[2], user))
  while slot < 32 and floor(slots / 2 ^ (slot - 1)) % 2 == 1 do slot = slot + 1 end
  if slot == 32 then return refuse({ 9, 'slots', '0', '', '' }) end
  own[#own + 1], own[#own + 2] = 'u:' .. user, format('%d', slots + 2 ^ (slot - 1))
end
if refusal then return refuse(refusal) end
for _, rate in ipairs(rates) do -- GCRA, as redis-cell has it: a clock that jumped costs a burst at most
  local name, period_us, burst, stored, writes, field = unpack(rate)
  local next_us = math.max(now_us, math.min(stored, now_us + period_us * burst)) + period_us
  local wait_us = next_us - period_us * burst - now_us
  if wait_us > 0 then return refuse({ 10, name, math.ceil(wait_us / 1000) }) end
  writes[#writes + 1], writes[#writes + 2] = field, format('%.0f', next_us)
end
local used = table.concat(uses, ' ')
local note = '{"action":"admit","from":' .. stock .. ',"to":' .. format('%d', left) .. ',"change":-'
  .. quantity .. ',"by":"' .. user .. '","timestamp":' .. now_ms .. ',"slot":' .. slot .. ',"uses":"'
  .. used .. '"}'
local extra = quantity ~= '1' and { 'quantity', quantity } or {}
if slot ~= 1 then extra[#extra + 1], extra[#extra + 2] = 'slot', slot end
if traceparent ~= '' then extra[#extra + 1], extra[#extra + 2] = 'traceparent', traceparent end
local marked = redis.pcall('SADD', KEYS[2], user)
if type(marked) == 'table' then return marked end if marked == 0 and not has_slots then return refuse(2) end
local noted, added = redis.pcall('HSETNX', KEYS[4], order, note)
if noted == 1 then
  added = redis.pcall('XADD', KEYS[5], '*', 'userId', user, 'voucherId', voucher, 'id', order, 'uses', used,
    unpack(extra))
  if type(added) == 'string' then
    if #own > 0 then call('HSET', KEYS[7], unpack(own)) end
    if #shared > 0 then call('HSET', KEYS[9], unpack(shared)) end
    call('DECRBY', KEYS[1], quantity) return 0
  end
  call('HDEL', KEYS[4], order)
end
if marked == 1 then call('SREM', KEYS[2], user) end
return noted == 0 and refuse(2) or added or noted
