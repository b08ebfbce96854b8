-- Repairs a sale by difference, once for each id: journal, buyers, stock. Orders that moved since the
-- comparison are left as they are. Afterwards the sum of the journal is the stock. If units were sold twice,
-- that is below 0, and no order is admitted.
-- KEYS[1] stock: string, KEYS[5] while there are limits; never created; KEYS[2] buyers: set of users
-- KEYS[3] journal: hash, order id -> stock movement as JSON; KEYS[4] voucher: hash with change and repaired
-- ARGV[1] id: of this repair, unlike that of every other, 1 .. 57 letters, digits and _.-
-- ARGV[2] complete, ARGV[3] change, ARGV[4] repaired: #complete and #load of the journal, and these two
-- fields of the voucher, as they were before the comparison, byte for byte; '' for none
-- ARGV[5] loaded: units that the sale gets, or loses with a minus; ARGV[6] drift: stock less sum at the
-- comparison
-- Then of each order, at most 500: ARGV[7] order id, '' for a user alone; ARGV[8] found: the note that the
-- journal held, '' for none; ARGV[9] note: the new note, with @from, @to, @now for numbers, '' for the same;
-- ARGV[10] sum: how the note changes the sum; ARGV[11] user id; ARGV[12] buyers: in, out or same
-- Reply list: an answer for each: repaired, moved (nothing was done), before (repaired before by this id)
-- Reply 1: refused, the journal is not complete, or was loaded or rebuilt since
-- Reply 2: refused, the stock must change, and an operator's change of it is open or came in between
-- Reply 3: refused, another repair came in between; Reply 4: refused, no stock is loaded
-- Error BADARG: an argument or the stock is invalid
-- Written by `just lua` from lua/src/repair.lua: change that file, not this one
local plain_key, buyers_key, journal, sale_key, limited_key = KEYS[1], KEYS[2], KEYS[3], KEYS[4], KEYS[5]
local id, complete, change, repaired, loaded, drift = unpack(ARGV, 1, 6)
local call, find = redis.call, string.find
local users = { ['in'] = {}, out = {}, same = {} }
local function is_number(text) return #text <= 14 and (text == '0' or find(text, '^%-?[1-9]%d*$')) end
local stock_key = call('EXISTS', limited_key) == 1 and limited_key or plain_key
local stock = call('GET', stock_key)
local change_now, repaired_now = unpack(call('HMGET', sale_key, 'change', 'repaired'))
local is_good = #KEYS == 5 and #ARGV <= 3006 and #ARGV % 6 == 0 and find(id, '^[%w_.-]+$') and #id <= 57
  and is_number(loaded) and is_number(drift) and is_number(stock or '0')
for at = 7, #ARGV, 6 do
  is_good = is_good and users[ARGV[at + 5]] and is_number(ARGV[at + 3]) and find(ARGV[at + 4], '^[1-9]%d*$')
end
if not is_good then return redis.error_reply('BADARG expected: as in the header, a numeric stock') end
local is_again, moves = repaired_now == id, loaded ~= '0' or drift ~= '0'
if not is_again then
  local whole = call('HMGET', journal, '#complete', '#load')
  if not whole[1] or whole[1] .. (whole[2] or '') ~= complete then return 1 end
  if moves and ((change_now or '') ~= change or find(change, '"state":"open"', 1, true)) then return 2 end
  if (repaired_now or '') ~= repaired then return 3 end
  if not stock then return 4 end
end
call('SISMEMBER', buyers_key, id) -- fails on a key of another type before anything is written
local left, by = tonumber(stock) or 0, '"repair:' .. id .. '"'
local time = call('TIME')
local now_ms = time[1] .. string.sub('00000' .. time[2], -6, -4)
local answers, notes, seen = {}, {}, {}
local function number(value) return string.format('%.0f', value) end
local function write(field, note, to)
  local numbers = { from = number(left), to = number(to), now = now_ms }
  notes[#notes + 1], notes[#notes + 2] = field, (note:gsub('@(%l+)', numbers))
  seen[field] = true
  left = to
end
local function repair(order, found, note, sum, user, buyers)
  local held = order ~= '' and call('HGET', journal, order) or ''
  if is_again then return (note == '' or find(held, by, 1, true)) and 'before' or 'moved' end
  if held ~= found or seen[order] then return 'moved' end
  if note ~= '' then write(order, note, left + sum) end
  local list = users[buyers]
  list[#list + 1] = user
  return 'repaired'
end
for at = 7, #ARGV, 6 do answers[#answers + 1] = repair(unpack(ARGV, at, at + 5)) end
if is_again then return answers end
local note = '{"action":"repair","from":@from,"to":@to,"change":%s,"by":%s,"timestamp":@now}'
if moves then write('#repair:' .. id, string.format(note, loaded, by), left - drift + loaded) end
if #number(left) > 13 then return redis.error_reply('BADARG the stock would have more than 13 digits') end
call('HSET', sale_key, 'repaired', id) -- first: it is refused if memory is short, SREM would not be
if #notes > 0 then call('HSET', journal, unpack(notes)) end
if users.out[1] then call('SREM', buyers_key, unpack(users.out)) end
if users['in'][1] then call('SADD', buyers_key, unpack(users['in'])) end
if left ~= stock + 0 then call('INCRBY', stock_key, number(left - stock)) end
return answers
