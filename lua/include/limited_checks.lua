-- All checks of an admission with limits, except whether the user has an order already; and what the order
-- uses of the limits.
-- Reads: KEYS and ARGV, as in admit_limited.lua. Defines: call, find, format; stock_key, buyers, journal,
-- stream, order, user, voucher, quantity, traceparent, uses, campaign_uses; stock, as text; left, the units
-- after it; now_ms; used, the uses as the entry has them; own, shared: what to write into the uses of the
-- voucher and of its campaign; slot, has_slots; refuse, which answers for an order that is not admitted.
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
    --- @include "known"
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
--- @include "time"
local now_s = tonumber(time[1])
--- @include "window"
if closed then return refuse(closed) end
if left < 0 then return refuse(1) end
--- @include "busy"
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
      --- @include "counted"
      if most ~= '-' and most - orders < 1 or most_units ~= '-' and most_units - of_units < units then
        --- @include "opens"
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
  --- @include "slot"
end
--- @include "rates"
--- @include "limited_arguments"
